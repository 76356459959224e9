package rpc

import (
	"bytes"
	"encoding/json"
	"regexp"
	"sync"
)

// An answer's id stands before its result or behind it, depending on who writes it; what stands within the result is no answer's.
var (
	idFirst = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]+)\s*,`)
	})
	idLast = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]+)|"id"\s*:\s*([0-9]+)(?:\s*,\s*"jsonrpc"\s*:\s*"2\.0")?)\s*\}\s*$`)
	})
)

// tooLong fails the call that a line answers of which only the ends are known; every call where these don't tell which.
func (p *Peer) tooLong(head, tail []byte) {
	var id []byte
	if m := idFirst().FindSubmatch(head); m != nil {
		id = m[1]
	} else if m := idLast().FindSubmatch(tail); m != nil {
		id = bytes.Join(m[1:], nil)
	}
	p.mu.Lock()
	ids := []string{string(id)}
	if p.pending[string(id)] == nil {
		ids = nil
		for k := range p.pending {
			ids = append(ids, k)
		}
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.answered(&message{ID: json.RawMessage(id), Error: Errorf(CodeInternal, "its answer is longer than %d MiB", p.max>>20)})
	}
}
