package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// startLimit ends a start that hangs. What it waits for is the engine's: pulling an image is not part of it.
const startLimit = 60 * time.Second

// errClosed: the provider was closed.
var errClosed = errors.New("the sandbox provider is closed")

// Provider makes boxes of one engine.
type Provider struct {
	opts    Options
	boxes   string // folder of the boxes
	program *program
	// launcher forks the network hosts of boxes, guests is what plays it.
	launcher *hostside.Launcher
	guests   *hostside.Program
	hosts    *hostside.Program

	mu      sync.Mutex
	closed  bool
	first   *engine            // the one that new boxes are made in; nil: none was needed yet
	engines map[string]*engine // by socket
	tied    map[string]tied    // boxes that live by this process, by id
	making  sync.WaitGroup
}

// tied is what a tied box lives by, and how what it leaves is removed when the provider closes.
type tied struct {
	birth *guest.Conn
	bury  func() error
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
	_ sandbox.Builder  = (*Provider)(nil)

	_ sandbox.NetworkLogger = (*Provider)(nil)
)

// New makes a provider. It touches neither files nor an engine until a box is asked for. Close ends the tied boxes.
func New(o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir := filepath.Join(o.StateRoot, Name)
	guests := hostside.GuestProgram(o.Guest)
	return &Provider{
		launcher: hostside.NewLauncher(guests), guests: guests, hosts: hostside.HostProgram(),
		opts: o, boxes: filepath.Join(dir, "boxes"), program: &program{dir: dir, bytes: o.Guest},
		engines: map[string]*engine{}, tied: map[string]tied{},
	}, nil
}

// engine is the one that new boxes are made in. One that doesn't answer is looked for again by the next caller.
func (p *Provider) engine(ctx context.Context) (*engine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if p.first != nil {
		return p.first, nil
	}
	e, err := findEngine(ctx, p.opts.Socket, p.opts.Env, os.Geteuid())
	if err != nil {
		return nil, err
	}
	if known := p.engines[e.socket]; known != nil {
		e.Close()
		e = known
	}
	p.first, p.engines[e.socket] = e, e
	return e, nil
}

// engineAt is the engine that a box was made in, which settings of today may not name.
func (p *Provider) engineAt(ctx context.Context, socket string) (*engine, error) {
	if socket == "" {
		return p.engine(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.engines[socket]; e != nil {
		return e, nil
	}
	e, err := openEngine(ctx, socket)
	if err != nil {
		return nil, err
	}
	p.engines[socket] = e
	return e, nil
}

// Close ends the tied boxes of this process and lets go of the others. What tied boxes leave in the engine is removed.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	left := p.tied
	p.tied = map[string]tied{}
	p.mu.Unlock()
	for _, t := range left {
		t.birth.Close() // ends it
	}
	var errs []error
	for id, t := range left {
		if err := t.bury(); err != nil {
			errs = append(errs, fmt.Errorf("destroy sandbox %s: %w", id, err))
		}
	}
	p.launcher.Stop()
	p.guests.Close()
	p.hosts.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// keep remembers a tied box's birth socket, which it lives by. ctx is of its making.
func (p *Provider) keep(ctx context.Context, id string, birth *guest.Conn) {
	ctx = context.WithoutCancel(ctx)
	bury := func() error {
		s, err := openSlot(p.boxes, id)
		if err != nil {
			return nil // somebody else has
		}
		defer s.close()
		ctx, cancel := context.WithTimeout(ctx, destroyLimit)
		defer cancel()
		return p.destroy(ctx, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tied[id] = tied{birth, bury}
}

// letGo forgets a box.
func (p *Provider) letGo(id string) {
	p.mu.Lock()
	t, ok := p.tied[id]
	delete(p.tied, id)
	p.mu.Unlock()
	if ok {
		t.birth.Close()
	}
}
