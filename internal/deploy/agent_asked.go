package deploy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/sdk/wire"
)

// prompted is one prompt of an agent in a box.
type prompted struct {
	texts        []string // that it says
	conversation string
	proxy        *modelproxy.Proxy
	peers        *peerTurns
	unsure       sync.WaitGroup // requests that may be another prompt's
}

// asked are the prompts of one agent that are under way, oldest first, and its model's door: an agent has one address for its model, so what comes there
// belongs to the prompt whose conversation it names (wire.ContextHeader), or whose text stands last in it. What holds the text of none, or of several alike, belongs to the oldest of those that it may belong
// to: it is booked once, and may be another's. The zero value has none.
type asked struct {
	mu    sync.Mutex
	under []*prompted
}

// begin adds a prompt; end takes it out, and waits for what may be another prompt's: that one would lose it.
func (a *asked) begin(k *prompted) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.under = append(a.under, k)
	return func() {
		a.mu.Lock()
		a.under = slices.DeleteFunc(a.under, func(o *prompted) bool { return o == k })
		a.mu.Unlock()
		k.unsure.Wait()
	}
}

func (a *asked) all() []*prompted {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.under)
}

// peersOf is what the prompt asks others by that an agent asks them in; nil while there is no prompt.
func (a *asked) peersOf() *peerTurns {
	if all := a.all(); len(all) > 0 {
		return all[0].peers
	}
	return nil
}

// maxTold bounds a request that is looked at for whose it is; one that is longer is refused by the proxy.
const maxTold = 65 << 20

// ServeHTTP passes a request of the agent's to its model.
func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	under := a.all()
	if len(under) == 0 {
		http.Error(w, "there is no prompt under way", http.StatusServiceUnavailable)
		return
	}
	k := under[0]
	if len(under) > 1 && r.Body != nil {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxTold))
		if err != nil {
			return // the agent left
		}
		named := r.Header.Get(wire.ContextHeader)
		k = nil
		if i := slices.IndexFunc(under, func(p *prompted) bool { return named != "" && p.conversation == named }); i >= 0 {
			k = under[i]
		} else {
			k = whose(under, body)
		}
		if k == nil {
			if k = a.hold(); k == nil {
				http.Error(w, "there is no prompt under way", http.StatusServiceUnavailable)
				return
			}
			defer k.unsure.Done()
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	r.Header.Del(wire.ContextHeader)
	k.proxy.ServeHTTP(w, r)
}

// hold is the oldest prompt, which doesn't end before its unsure is done with; nil for none.
func (a *asked) hold() *prompted {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.under) == 0 {
		return nil
	}
	a.under[0].unsure.Add(1)
	return a.under[0]
}

// whose is the prompt that a request of a model belongs to; nil where nothing tells. A prompt's text may be a part of a message, and, of an agent that takes
// its orders apart, a message a part of it.
func whose(under []*prompted, body []byte) *prompted {
	texts := textsIn(body)
	for i := len(texts) - 1; i >= 0; i-- {
		if k, some := only(under, func(t string) bool { return strings.Contains(texts[i], t) }); some {
			return k
		}
	}
	for i := len(texts) - 1; i >= 0; i-- {
		t := strings.TrimSpace(texts[i])
		if k, some := only(under, func(own string) bool { return len(t) >= leastPart && strings.Contains(own, t) }); some {
			return k
		}
	}
	return nil
}

// leastPart is the length of a text that tells a prompt by being a part of it; shorter ones are in too many.
const leastPart = 6

// only is the prompt of which fits holds for a text, the longest one where one prompt's holds another's; nil for several. some tells whether there is any.
func only(under []*prompted, fits func(string) bool) (k *prompted, some bool) {
	longest := 0
	for _, p := range under {
		for _, t := range p.texts {
			switch {
			case len(t) < longest || !fits(t):
			case len(t) > longest:
				k, longest = p, len(t)
			case k != p:
				k = nil
			}
		}
	}
	return k, longest > 0
}

// textsIn are the texts of a document, in its order.
func textsIn(body []byte) []string {
	var out []string
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		t, err := d.Token()
		if err != nil {
			return out
		}
		if s, ok := t.(string); ok {
			out = append(out, s)
		}
	}
}

// textsOf are the texts that parts say.
func textsOf(parts []wire.Part) []string {
	var out []string
	for _, p := range parts {
		if t := strings.TrimSpace(p.Text); t != "" {
			out = append(out, t)
		}
	}
	return out
}
