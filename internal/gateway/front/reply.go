package front

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/rawjson"
)

// reply is the answer to one tools/call: one JSON message, or, from the moment that something has to be said before the result, a stream of events.
type reply struct {
	w http.ResponseWriter
	s *session

	mu        sync.Mutex
	streaming bool
	over      bool
	timer     *time.Timer
}

// start begins to watch the time.
func (r *reply) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(slowAnswer, r.beat)
}

// beat keeps a slow answer alive.
func (r *reply) beat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.stream()
	if _, err := io.WriteString(r.w, ": alive\n\n"); err == nil {
		r.flush()
	}
	r.timer.Reset(pulse)
}

// stop ends what comes before the result.
func (r *reply) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.timer.Stop()
}

// stream turns the answer into a stream; r.mu is held.
func (r *reply) stream() {
	if !r.streaming {
		r.streaming = true
		streamHeaders(r.w, r.s)
	}
}

func (r *reply) flush() {
	_ = http.NewResponseController(r.w).Flush() // a writer that can't flush sends at its own time
}

// Notify passes a notification on.
func (r *reply) Notify(msg []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.stream()
	if writeEvent(r.w, child.Bytes(msg)) == nil {
		r.flush()
	}
}

var (
	cantAsk = []byte(`"error":{"code":-32601,"message":"the client can't be asked this"}`)
	gone    = []byte(`"error":{"code":-32000,"message":"the client has gone"}`)
)

// Ask passes a request of the server on to the client, and waits for its answer.
func (r *reply) Ask(ctx context.Context, method string, params []byte) []byte {
	if !r.s.asks[method] {
		return cantAsk
	}
	id, answer, done := r.s.ask()
	defer done()
	b := rawjson.AppendString([]byte(`{"jsonrpc":"2.0","id":`), id)
	b = rawjson.AppendString(append(b, `,"method":`...), method)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	r.Notify(append(b, '}'))
	select {
	case member := <-answer:
		return member
	case <-ctx.Done():
	case <-r.s.ended:
	}
	return gone
}

// ask makes an id for a question to the client.
func (s *session) ask() (id string, answer <-chan []byte, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	id = "gateway-" + strconv.FormatUint(s.asked, 10)
	ch := make(chan []byte, 1)
	if s.pending == nil {
		s.pending = map[string]chan []byte{}
	}
	s.pending[id] = ch
	return id, ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pending, id)
	}
}

// answered takes the client's answer to a question; one that nobody waits for is dropped.
func (s *session) answered(m rpcMessage) {
	id, _ := rawjson.Text(m.id)
	s.mu.Lock()
	ch := s.pending[id]
	delete(s.pending, id)
	s.mu.Unlock()
	if ch == nil {
		return
	}
	if m.err != nil {
		ch <- append([]byte(`"error":`), m.err...)
		return
	}
	ch <- append([]byte(`"result":`), m.result...)
}

// finish writes head, v and tail as the last message.
func (r *reply) finish(head []byte, v child.Value, tail []byte) {
	if r.streaming {
		if writeEvent(r.w, child.Bytes(head), v, child.Bytes(tail)) == nil {
			r.flush()
		}
		return
	}
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.FormatInt(int64(len(head)+len(tail))+v.Len(), 10))
	r.w.WriteHeader(http.StatusOK)
	for _, part := range []child.Value{child.Bytes(head), v, child.Bytes(tail)} {
		if _, err := part.WriteTo(r.w); err != nil {
			return // the client has gone
		}
	}
	r.flush() // the child's connection is read to its end only afterwards
}

// writeEvent writes one event of a stream, its data being the parts together.
func writeEvent(w io.Writer, parts ...child.Value) error {
	if _, err := io.WriteString(w, "event: message\ndata: "); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := p.WriteTo(dataWriter{w}); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "\n\n")
	return err
}

// dataWriter begins a new line of data at each line's end, as events need it. JSON has them between values only.
type dataWriter struct{ w io.Writer }

func (d dataWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		end := len(p)
		i := bytes.IndexAny(p[n:], "\r\n")
		if i >= 0 {
			end = n + i
		}
		if _, err := d.w.Write(p[n:end]); err != nil {
			return n, err
		}
		if n = end; i >= 0 {
			if _, err := io.WriteString(d.w, "\ndata: "); err != nil {
				return n, err
			}
			n++
		}
	}
	return len(p), nil
}
