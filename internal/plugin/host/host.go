// Package host runs plugins: processes that speak the protocol of docs/plugin-protocol.md. It starts them when something of theirs is first used, keeps them
// for all runs of this program, tells calls apart when several are under way, and makes step kinds and executors of the types that they have.
//
// Words: a program is how a plugin is started, a process is one life of it; a call is one thing that is asked of it, known by its token while it lasts; a host
// call is what the plugin asks meanwhile. What host calls do comes from outside, as a map: nothing here knows stores, sandboxes or secrets. How distributions are
// found and installed is the business of package dist.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Limits of calls.
const (
	maxCalls   = 64               // under way in one process
	cancelTime = 10 * time.Second // see Options
)

// Options are what all plugins of a program share.
type Options struct {
	Host plugin.Named
	Env  func(string) (string, bool) // as os.LookupEnv
	Log  *slog.Logger
	// TempDir is where processes get folders of their own; "" is the system's.
	TempDir string
	// Calls are what plugins may ask, by method ("host/secret.get").
	Calls map[string]Func
	// CancelTime is what a plugin has to answer a call that was cancelled, before its process is given up; 0 is 10 s.
	CancelTime time.Duration
}

// scratch is a folder for a process or a call, which the caller removes.
func (o Options) scratch() (*atomicfile.Scratch, error) {
	return atomicfile.NewScratchIn(o.TempDir, "agentenv-plugin")
}

// Func serves one host call. An error that it makes with Refuse is for people; others are told as defects. A refused call fails nothing by itself.
type Func func(ctx context.Context, c *Caller, params json.RawMessage) (any, error)

// Caller is who a host call is made for.
type Caller struct {
	Run, Step string
	// Distribution is whose program asks; "" for the Python host.
	Distribution string
	// Git: Distribution is the id of a git plugin.
	Git bool
	// Temp is the folder in which files are handed over, and Mine tells whether a path is inside it.
	Temp string
	Mine func(path string) bool
	Log  *slog.Logger
	// Spend books a cost of the step. It may be nil.
	Spend func(plugin.Spend)
	// Late makes a call that was cancelled wait for the plugin's answer, and is given the result that came all the same; nil for an error. It may be nil.
	Late  func(result json.RawMessage)
	lines lines

	mu    sync.Mutex
	ended bool
	ends  []func()
}

// Defer has f called when the call ends, at once when it has ended.
func (c *Caller) Defer(f func()) {
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.ends = append(c.ends, f)
	}
	c.mu.Unlock()
	if ended {
		f()
	}
}

// close runs what was deferred.
func (c *Caller) close() {
	c.mu.Lock()
	c.ended = true
	ends := c.ends
	c.ends = nil
	c.mu.Unlock()
	for _, f := range ends {
		f()
	}
}

// Refuse is an answer of a host call that says why not, for people.
func Refuse(format string, args ...any) error { return rpc.Errorf(plugin.CodeRefused, format, args...) }

// Plugin is a program that is started when it is first called, and again when it has died. Its methods may be called from several goroutines.
type Plugin struct {
	prog Program
	o    Options

	slots chan struct{}
	work  sync.WaitGroup // calls, and goroutines of lives

	mu     sync.Mutex
	now    *life
	old    []*life // retired, with calls that don't end
	closed bool
}

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

// New makes a plugin. Nothing is started. The caller closes it.
func New(prog Program, o Options) *Plugin {
	return &Plugin{prog: prog, o: o, slots: make(chan struct{}, maxCalls)}
}

// Name is what people are told it is.
func (p *Plugin) Name() string { return p.prog.Name }

// errClosed: the program is ending.
var errClosed = errors.New("plugins have been closed")

// get is the process that serves, which is started where none is. Without an error, the caller counts as work until it is done.
func (p *Plugin) get(ctx context.Context) (*life, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	l := p.now
	if l == nil || l.gone() {
		lctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // who asked first may give up while others wait for it
		l = &life{p: p, stop: stop, up: make(chan struct{}), calls: map[string]*Caller{}, queue: newLogQueue(p.o.Log.With("plugin", p.prog.Name))}
		l.boxes = newBoxWire(l.notify)
		l.base = func() context.Context { return context.WithoutCancel(lctx) }
		p.now = l
		p.work.Go(func() { l.live(lctx) })
	}
	p.work.Add(1)
	p.mu.Unlock()
	var err error
	select {
	case <-l.up:
		err = l.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		p.work.Done()
		return nil, err
	}
	return l, nil
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

// Call asks the plugin. params makes the parameters of the call's token. An answer that is an error is an *rpc.Error; a process that can't be started, or
// dies meanwhile, is a *Died. When ctx ends, the plugin is told, and Call returns the cause at once.
func (p *Plugin) Call(ctx context.Context, method string, c *Caller, params func(call string) any, result any) error {
	leave, err := p.slot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	l, err := p.get(ctx)
	if err != nil {
		return err
	}
	defer p.work.Done()
	return l.call(ctx, method, c, params, result)
}

// slot waits for room for one more call, which the caller leaves.
func (p *Plugin) slot(ctx context.Context) (leave func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
	l.queue.flush()
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

// end takes a call's token back: nothing can be asked for it any more.
func (l *life) end(token string) {
	l.mu.Lock()
	c := l.calls[token]
	delete(l.calls, token)
	last := l.retired && len(l.calls) == 0
	l.mu.Unlock()
	if last { // only what doesn't stop is left
		l.p.work.Go(func() { l.proc.stop(0) })
	}
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

// retire takes a process out of use. It is ended when nothing but what doesn't stop is left.
func (p *Plugin) retire(l *life) {
	p.mu.Lock()
	if p.now == l {
		p.now = nil
	}
	p.old = append(p.old, l)
	p.mu.Unlock()
	l.mu.Lock()
	l.retired = true
	living := len(l.calls)
	l.mu.Unlock()
	if living == 0 {
		l.proc.stop(0)
	}
}

// Close ends all processes and waits for them.
func (p *Plugin) Close(context.Context) error {
	p.close()
	return nil
}

func (p *Plugin) close() {
	p.mu.Lock()
	p.closed = true
	all := p.old
	if p.now != nil {
		all = append(all, p.now)
	}
	p.old, p.now = nil, nil
	p.mu.Unlock()
	for _, l := range all {
		p.work.Go(func() {
			l.stop()
			if <-l.up; l.err == nil {
				l.proc.stop(leaveTime)
			}
		})
	}
	p.work.Wait()
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
		c := h.l.calls[line.Call]
		h.l.mu.Unlock()
		h.l.queue.put(c, line, len(params))
	case plugin.NotifySpend:
		var s plugin.Spend
		if json.Unmarshal(params, &s) != nil || s.USD < 0 || s.InputTokens < 0 || s.OutputTokens < 0 {
			return
		}
		h.l.mu.Lock()
		c := h.l.calls[s.Call]
		h.l.mu.Unlock()
		h.l.queue.spend(c, s)
	default:
		if h.l.boxes != nil {
			h.l.boxes.Notify(method, params, h.l.later)
		}
	}
}
