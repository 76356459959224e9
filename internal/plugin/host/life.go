package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// life is one process with what it is working on.
type life struct {
	p     *Plugin
	up    chan struct{}      // closed when proc or err is set
	stop  context.CancelFunc // gives up starting
	proc  *process
	err   error
	queue *logQueue
	boxes *boxWire               // nil of a command, which has no sandboxes
	base  func() context.Context // without its end: for what outlives who asked for it

	mu      sync.Mutex
	calls   map[string]*Caller
	next    int
	retired bool // it gets no more calls, and is ended after its last one
}

// live starts the process and sees it to its end.
func (l *life) live(ctx context.Context) {
	defer l.boxes.close()
	defer l.queue.close()
	defer l.stop()
	l.proc, l.err = start(ctx, l.p.prog, l.p.o, handler{l})
	close(l.up)
	if l.err != nil {
		return
	}
	select {
	case <-l.proc.peer.Done(): // it is of no use any more
		l.proc.stop(brokenTime)
	case <-l.proc.done:
	}
}

// gone tells whether a life serves no more. It is called with the plugin's mu held.
func (l *life) gone() bool {
	select {
	case <-l.up:
	default:
		return false
	}
	if l.err != nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return true
	}
	select {
	case <-l.proc.peer.Done():
		return true
	default:
		return false
	}
}

// call asks one life. It counts as work.
func (l *life) call(ctx context.Context, method string, c *Caller, params func(call string) any, result any) (err error) {
	token := l.begin(c)
	settled, late := make(chan struct{}), json.RawMessage(nil)
	err = l.proc.peer.Call(ctx, method, params(token), result, func(r json.RawMessage) {
		late = r
		close(settled)
	})
	if err != nil && ctx.Err() != nil {
		if c != nil && c.Late != nil && l.await(settled) {
			c.Late(late)
		}
		l.watch(settled)
	}
	l.end(token)
	if errors.Is(err, rpc.ErrClosed) {
		return l.proc.died()
	}
	return err
}

// begin enters a call.
func (l *life) begin(c *Caller) string {
	if c == nil {
		c = &Caller{}
	}
	c.Temp, c.Mine = l.proc.temp.Dir, l.proc.within
	if d := l.proc.prog.Distribution; d != nil {
		c.Distribution, c.Git = d.Name, l.proc.prog.Git
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	token := "c-" + strconv.Itoa(l.next)
	l.calls[token] = c
	return token
}

// end takes a call's token back: nothing can be asked for it any more. When it returns, all that was logged and spent for the call is told.
func (l *life) end(token string) {
	l.mu.Lock()
	c := l.calls[token]
	delete(l.calls, token)
	last := l.retired && len(l.calls) == 0
	l.mu.Unlock()
	if last { // only what doesn't stop is left
		l.p.work.Go(func() { l.proc.stop(0) })
	}
	l.queue.flush() // the last of the call: who enters its lines and costs does so under the lock
	c.settle()
	c.close()
}

// await waits for the answer to a call that was cancelled, for as long as a plugin has for it.
func (l *life) await(settled <-chan struct{}) bool {
	t := time.NewTimer(cmp.Or(l.p.o.CancelTime, cancelTime))
	defer t.Stop()
	select {
	case <-settled:
		return true
	case <-t.C:
		return false
	}
}

// watch retires a process that doesn't answer a call that was cancelled.
func (l *life) watch(settled <-chan struct{}) {
	l.p.work.Go(func() {
		t := time.NewTimer(cmp.Or(l.p.o.CancelTime, cancelTime))
		defer t.Stop()
		select {
		case <-settled:
			return
		case <-l.proc.done:
			return
		case <-t.C:
		}
		l.proc.log.Warn("the plugin didn't stop a cancelled call; it gets no more")
		l.p.retire(l)
	})
}

// handler serves what a process asks.
type handler struct{ l *life }

// Handle serves a host call for the call that its parameters name.
func (h handler) Handle(ctx context.Context, method string, params json.RawMessage) (any, error) {
	f, ok := h.l.p.o.Calls[method]
	if !ok {
		return nil, rpc.Errorf(rpc.CodeNoMethod, "this agent-env has no %s", diag.Clean(method))
	}
	var of struct {
		Call string `json:"call"`
	}
	if err := json.Unmarshal(params, &of); err != nil {
		return nil, rpc.Errorf(rpc.CodeParams, "the parameters must be an object with call, the token of a call")
	}
	h.l.mu.Lock()
	c := h.l.calls[of.Call]
	h.l.mu.Unlock()
	if c == nil {
		return nil, Refuse("the call %s has ended, or never was", diag.Repr(of.Call))
	}
	out, err := f(ctx, c, params)
	if err != nil && rpc.CodeOf(err) == 0 && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", method, err)
	}
	return out, err
}

// Notify takes log lines and costs. It never waits.
func (h handler) Notify(method string, params json.RawMessage) {
	switch method {
	case plugin.NotifyLog:
		var line plugin.Line
		if json.Unmarshal(params, &line) != nil {
			return
		}
		h.l.mu.Lock()
		defer h.l.mu.Unlock()
		h.l.queue.put(h.l.calls[line.Call], line, len(params))
	case plugin.NotifySpend:
		var s plugin.Spend
		if json.Unmarshal(params, &s) != nil || s.USD < 0 || s.InputTokens < 0 || s.OutputTokens < 0 {
			return
		}
		h.l.mu.Lock()
		defer h.l.mu.Unlock()
		h.l.queue.spend(h.l.calls[s.Call], s)
	default:
		if h.l.boxes != nil {
			h.l.boxes.Notify(method, params, h.l.later)
		}
	}
}
