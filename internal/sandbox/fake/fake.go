// Package fake is a sandbox provider for tests: its boxes are an in-memory file tree, scripted programs and an in-memory network.
// Nothing it does touches the host, and nothing real runs: its isolation level is sandbox.LevelNone, and it says so.
//
// A Machine is one such box seen by a test. Time is the test's: under testing/synctest leases and timeouts need no waiting.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Options is how the boxes of a Provider behave.
type Options struct {
	// Programs are found by the last element of Argv[0]; they are added to Builtins and replace those of the same name.
	Programs map[string]Program
	// Any, when set, is run for every command whose program is not in Programs, Builtins included.
	Any Program
	// OnCreate is called before a box is made; its error is Create's.
	OnCreate func(sandbox.Spec) error
	// Files are in every new box: absolute path to content.
	Files map[string]string
}

// Provider makes fake boxes.
type Provider struct {
	opts Options

	mu    sync.Mutex
	next  int
	boxes map[string]*Machine
	order []string
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
)

// New makes a provider. Close ends its tied boxes.
func New(o Options) *Provider { return &Provider{opts: o, boxes: map[string]*Machine{}} }

// Create makes a box at once.
func (p *Provider) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Info{}, err
	}
	if err := supported(s); err != nil {
		return sandbox.Info{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Key != "" {
		for _, m := range p.boxes {
			if m.spec.Key == s.Key && !m.dead() {
				return m.info(), nil
			}
		}
	}
	if p.opts.OnCreate != nil {
		if err := p.opts.OnCreate(s); err != nil {
			return sandbox.Info{}, err
		}
	}
	p.next++
	m := newMachine("fake-"+strconv.Itoa(p.next), s, &p.opts)
	p.boxes[m.id] = m
	p.order = append(p.order, m.id)
	return m.info(), nil
}

// Check is what Create would refuse.
func (p *Provider) Check(_ context.Context, s sandbox.Spec) error { return supported(s) }

func supported(s sandbox.Spec) error {
	if s.Image != "" {
		return fmt.Errorf("image %s: %w", s.Image, sandbox.ErrUnsupported)
	}
	if s.Network != "" && s.Network != sandbox.NetNone {
		return fmt.Errorf("network %s: %w", s.Network, sandbox.ErrUnsupported)
	}
	if s.Isolation != "" && s.Isolation != sandbox.LevelNone {
		return fmt.Errorf("isolation %s, where a fake sandbox has none: %w", s.Isolation, sandbox.ErrUnsupported)
	}
	return nil
}

// Machine is the box of an id, for a test to look into; nil when there is none.
func (p *Provider) Machine(id string) *Machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boxes[id]
}

// Machines are all boxes that were made and not destroyed, oldest first.
func (p *Provider) Machines() []*Machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	ms := make([]*Machine, 0, len(p.order))
	for _, id := range p.order {
		ms = append(ms, p.boxes[id])
	}
	return ms
}

// Connect opens a handle to a live box.
func (p *Provider) Connect(ctx context.Context, id string) (guest.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := p.Machine(id)
	if m == nil || m.dead() {
		return nil, fmt.Errorf("%s: %w", id, sandbox.ErrNotFound)
	}
	return &handle{m: m}, nil
}

// List tells of every box, newest first.
func (p *Provider) List(ctx context.Context) ([]sandbox.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var infos []sandbox.Info
	for _, m := range slices.Backward(p.Machines()) {
		infos = append(infos, m.info())
	}
	return infos, nil
}

// Destroy kills a box and forgets it.
func (p *Provider) Destroy(_ context.Context, id string) error {
	p.mu.Lock()
	m := p.boxes[id]
	delete(p.boxes, id)
	p.order = slices.DeleteFunc(p.order, func(o string) bool { return o == id })
	p.mu.Unlock()
	if m != nil {
		m.Kill()
	}
	return nil
}

// Sweep forgets the dead boxes.
func (p *Provider) Sweep(ctx context.Context) ([]string, error) {
	var swept []string
	for _, m := range p.Machines() {
		if m.dead() {
			swept = append(swept, m.id)
			if err := p.Destroy(ctx, m.id); err != nil {
				return swept, err
			}
		}
	}
	return swept, nil
}

// Close ends the tied boxes.
func (p *Provider) Close() error {
	for _, m := range p.Machines() {
		if m.spec.Tied {
			m.Kill()
		}
	}
	return nil
}

// Machine is one fake box.
type Machine struct {
	id      string
	spec    sandbox.Spec
	opts    *Options
	created time.Time
	Files   *Tree

	gone  chan struct{} // closed when the box has died
	once  sync.Once
	mu    sync.Mutex
	end   time.Time
	timer *time.Timer
	ports map[string]*listener
	cmds  []guest.Command
	procs sync.WaitGroup
}

func newMachine(id string, s sandbox.Spec, o *Options) *Machine {
	lease := s.Lease
	if lease <= 0 {
		lease = sandbox.DefaultLease
	}
	now := time.Now()
	m := &Machine{id: id, spec: s, opts: o, created: now, end: now.Add(lease), Files: newTree(), ports: map[string]*listener{}}
	m.gone = make(chan struct{})
	m.timer = time.AfterFunc(lease, m.cut)
	for path, content := range o.Files {
		m.Files.WriteFile(path, []byte(content), 0o644)
	}
	return m
}

// ID is the box's id.
func (m *Machine) ID() string { return m.id }

// Spec is what the box was made from.
func (m *Machine) Spec() sandbox.Spec { return m.spec }

// Commands are the commands that were run so far, in order.
func (m *Machine) Commands() []guest.Command {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.cmds)
}

// Kill ends the box as a crash or its lease would, and waits for its programs. It stays listed as dead until Destroy or Sweep.
func (m *Machine) Kill() {
	m.timer.Stop()
	m.mu.Lock()
	m.cut()
	ports := m.ports
	m.ports = map[string]*listener{}
	m.mu.Unlock()
	for _, l := range ports {
		l.Close()
	}
	m.procs.Wait()
}

// begin counts one program more, which Kill waits for, unless the box is dead.
func (m *Machine) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead() {
		return false
	}
	m.procs.Add(1)
	return true
}

func (m *Machine) cut() { m.once.Do(func() { close(m.gone) }) }

func (m *Machine) dead() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

func (m *Machine) info() sandbox.Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := sandbox.StateRunning
	if m.dead() {
		state = sandbox.StateDead
	}
	return sandbox.Info{
		ID: m.id, Provider: "fake", Name: m.spec.Name, Key: m.spec.Key, Run: m.spec.Run, State: state, Tied: m.spec.Tied,
		Created: m.created, Expires: m.end, Labels: m.spec.Labels,
		Isolation: sandbox.Isolation{
			Level:  sandbox.LevelNone,
			Probes: []sandbox.Probe{{Name: "real", Detail: "a fake sandbox for tests: nothing real runs in it"}},
			Limits: map[string]string{"cpu": "none", "disk": "none", "memory": "none", "pids": "none"},
		},
	}
}
