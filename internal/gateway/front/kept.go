package front

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/internal/rawjson"
)

const (
	// readResult is the tool that reads results that were too large to show.
	readResult = "read_result"
	// resultsPath is where they are read without MCP, followed by the handle.
	resultsPath = "/results/"
	// defaultPage and maxPage are how many bytes a call of the tool answers.
	defaultPage, maxPage = 16 << 10, 64 << 10
	// maxKept is how many handles are known; the oldest is forgotten first.
	maxKept = 10_000
)

const (
	readResultText = "Reads a part of a result that was too large to show, by the handle that was given in its place. Answers what is at offset, counted in bytes, " +
		"and where to go on."
	readResultSchema = `{"type":"object","properties":{"handle":{"type":"string"},"offset":{"type":"integer","minimum":0,"description":"Default 0."},` +
		`"length":{"type":"integer","minimum":1,"maximum":65536,"description":"Bytes; default 16384."}},"required":["handle"],"additionalProperties":false}`
)

// kept knows which results each role may read: those that its own calls were answered.
type kept struct {
	mu    sync.Mutex
	known map[keptKey]bool
	order []keptKey
}

type keptKey struct{ role, handle string }

// add tells whether it was the first.
func (k *kept) add(role, handle string) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := keptKey{role, handle}
	if k.known[key] {
		return false
	}
	if k.known == nil {
		k.known, first = map[keptKey]bool{}, true
	}
	if len(k.order) >= maxKept {
		delete(k.known, k.order[0])
		k.order = k.order[1:]
	}
	k.known[key], k.order = true, append(k.order, key)
	return first
}

func (k *kept) has(role, handle string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[keptKey{role, handle}]
}

func (k *kept) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.known) > 0
}

// openKept is a result that a role may read.
func (g *Gateway) openKept(ctx context.Context, role, handle string) (io.ReadSeekCloser, int64, error) {
	if g.o.Kept == nil || !g.kept.has(role, handle) {
		return nil, 0, fmt.Errorf("there is no result %s here", strconv.Quote(handle[:min(len(handle), 100)]))
	}
	r, size, err := g.o.Kept(ctx, handle)
	if err != nil {
		g.log.Error("a large result can't be read", "handle", handle, "error", err)
		return nil, 0, fmt.Errorf("the result can't be read now")
	}
	return r, size, nil
}

// page answers read_result.
func (g *Gateway) page(ctx context.Context, role string, args []byte) []byte {
	handle, _ := rawjson.Text(rawjson.Get(args, "handle"))
	offset, ok1 := wholeNumber(rawjson.Get(args, "offset"), 0)
	length, ok2 := wholeNumber(rawjson.Get(args, "length"), defaultPage)
	if !ok1 || !ok2 || length < 1 || length > maxPage {
		return refused(fmt.Sprintf("offset is a whole number from 0 on, and length one from 1 to %d", maxPage))
	}
	r, size, err := g.openKept(ctx, role, handle)
	if err != nil {
		return refused(err.Error())
	}
	defer r.Close()
	if offset >= size {
		return refused(fmt.Sprintf("the result has %d bytes; there is nothing at offset %d", size, offset))
	}
	b := make([]byte, min(length, size-offset))
	if _, err = r.Seek(offset, io.SeekStart); err == nil {
		_, err = io.ReadFull(r, b)
	}
	if err != nil {
		g.log.Error("a large result can't be read", "handle", handle, "error", err)
		return refused("the result can't be read now")
	}
	b = whole(b, offset+int64(len(b)) == size)
	next := offset + int64(len(b))
	head := fmt.Sprintf("Bytes %d to %d of %d; that is the end.\n", offset, next, size)
	if next < size {
		head = fmt.Sprintf("Bytes %d to %d of %d; go on with offset %d.\n", offset, next, size, next)
	}
	out := rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), head+strings.ToValidUTF8(string(b), "\uFFFD"))
	return append(out, `}],"isError":false}`...)
}

// whole leaves off a character that goes on behind the end, unless that would leave nothing.
func whole(b []byte, last bool) []byte {
	if last {
		return b
	}
	for i := 1; i < min(utf8.UTFMax+1, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

// wholeNumber is a number number from 0 on; what is left out is def.
func wholeNumber(v []byte, def int64) (int64, bool) {
	if rawjson.IsNull(v) {
		return def, true
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil && n >= 0
}

// serveResult answers a result that was too large to show, whole, or what the header Range asks for.
func (g *Gateway) serveResult(w http.ResponseWriter, r *http.Request, handle string, p access.Principal) {
	if !safe(r.Method) {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	in, _, err := g.openKept(r.Context(), role(r, p), handle)
	if err != nil {
		proxy.Error(w, http.StatusNotFound, err.Error())
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, "", g.o.Now(), in)
}
