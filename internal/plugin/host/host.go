// Package host runs plugins: processes that speak the protocol of docs/plugin-protocol.md. It starts them when something of theirs is first used, keeps them
// for all runs of this program, tells calls apart when several are under way, and makes step kinds and executors of the types that they have.
//
// Words: a program is how a plugin is started, a process is one life of it; a call is one thing that is asked of it, known by its token while it lasts; a host
// call is what the plugin asks meanwhile. What host calls do comes from outside, as a map: nothing here knows stores, sandboxes or secrets. How distributions are
// found and installed is the business of package dist.
package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/sdk/plugin"
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
	// Keeper ends what processes leave behind; nil: what leaves their process groups outlives them.
	Keeper *keeper.Keeper
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
