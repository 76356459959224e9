package agent

import (
	"net/http"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// keepAlive is how often a silent stream is written to, so that nobody between takes it for dead.
const keepAlive = 15 * time.Second

// serveStream answers message/stream and tasks/resubscribe as server-sent events: the task, then its updates until the final one. What is wrong
// before the first event is answered as JSON.
func (a *Agent) serveStream(w http.ResponseWriter, r *http.Request, req wire.Request) {
	t, rerr := a.streamed(r, req)
	if rerr != nil {
		a.answerRPC(w, r, req.ID, nil, rerr)
		return
	}
	s := a.tasks
	s.mu.Lock()
	v, next := t.view(0), t.lost+len(t.updates)
	if req.Method == wire.A2AStream { // from the beginning, though its turn may be further
		v.Status, next = wire.TaskStatus{State: wire.TaskSubmitted}, 0
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := &events{w: w, c: http.NewResponseController(w), id: req.ID}
	if out.send(v) != nil {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		ups, n, ended, changed := s.since(t, next)
		for _, u := range ups {
			if out.send(u) != nil {
				return
			}
		}
		if next = n; ended {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
			if out.comment() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// streamed finds or makes the task of a stream.
func (a *Agent) streamed(r *http.Request, req wire.Request) (*task, *wire.Error) {
	if !a.streaming {
		return nil, &wire.Error{Code: wire.CodeInternal, Message: "the agent doesn't stream"}
	}
	if req.Method == wire.A2AStream {
		p, rerr := decodeSend(req.Params)
		if rerr != nil {
			return nil, rerr
		}
		return a.tasks.submit(r.Context(), p.Message)
	}
	q, rerr := decodeQuery(req.Params)
	if rerr != nil {
		return nil, rerr
	}
	a.tasks.mu.Lock()
	defer a.tasks.mu.Unlock()
	t := a.tasks.tasks[q.ID]
	switch {
	case t == nil:
		return nil, unknownTask(q.ID)
	case wire.TaskEnded(t.state):
		return nil, badParams("the task has ended: read it by tasks/get")
	}
	return t, nil
}

// events writes JSON-RPC responses as server-sent events.
type events struct {
	w  http.ResponseWriter
	c  *http.ResponseController
	id []byte
}

func (e *events) send(v any) error {
	raw, err := encode(v)
	if err != nil {
		return err
	}
	b, err := encode(wire.Response{ID: e.id, Result: raw})
	if err != nil {
		return err
	}
	return e.write("data: " + string(b) + "\n\n")
}

func (e *events) comment() error { return e.write(": \n\n") }

func (e *events) write(s string) error {
	if _, err := e.w.Write([]byte(s)); err != nil {
		return err
	}
	return e.c.Flush()
}
