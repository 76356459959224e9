// Package fleet runs the agents of workspaces, each in a process of its own, until they are stopped, end by themselves, or the fleet closes. When this program
// dies, however that goes, nothing of them is left.
//
// Words: a place is the folder of a workspace; its agent is the program that serves it, which says where on its first line. The package knows nothing of
// what an agent is made of.
package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/subprocess"
)

// Limits of agents.
const (
	startTime = 90 * time.Second // to answer; servers of theirs that hang have half a minute
	stopTime  = 10 * time.Second // from SIGTERM to the end of all that is left
	tailSize  = 8 << 10
	tailLines = 6
	lineSize  = 1 << 20
)

// ListenerFD is the descriptor of the listener that an agent is started with.
const ListenerFD = 3

// Options are how agents are started.
type Options struct {
	// Command makes the command that serves the agent of a place. It accepts connections of the listener at ListenerFD, and prints one line of JSON with an
	// Agent once it does. Its folder, streams and files are set here.
	Command func(ctx context.Context) (*exec.Cmd, error)
	// Keeper ends what agents leave behind; nil: what leaves their process groups outlives them.
	Keeper *keeper.Keeper
}

// Agent is one that is served.
type Agent struct {
	URL      string   `json:"a2a_url"` // whoever knows it may ask the agent
	Model    string   `json:"model"`
	Tools    []string `json:"tools"`
	Skills   []string `json:"skills"`
	Warnings []string `json:"warnings"`
}

// State is how the agent of a place is.
type State struct {
	Running bool
	Agent          // of one that runs
	Port    int    // of one that runs
	Fault   string // why the last one can't be served, or ended by itself; "" for neither
}

var (
	// ErrRunning: the agent is served already, or about to be.
	ErrRunning = errors.New("its agent is served already, or about to be")
	// ErrClosed: the fleet has been closed.
	ErrClosed = errors.New("agents are being stopped")
	// ErrTaken: another program has the port.
	ErrTaken = errors.New("another program has it, choose another one, or leave it out for any")
)

// Fleet is the agents that run. Its methods may be called from several goroutines.
type Fleet struct {
	o    Options
	work sync.WaitGroup // agents

	mu     sync.Mutex
	of     map[string]*member // by place
	closed bool
}

// New makes a fleet without agents. The caller closes it.
func New(o Options) *Fleet { return &Fleet{o: o, of: map[string]*member{}} }

// Listen takes a port of the loopback for an agent; 0 is any that is free. Start takes it over.
func (f *Fleet) Listen(ctx context.Context, port int) (*net.TCPListener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d can't be used: %w", port, ErrTaken)
	case err != nil:
		return nil, fmt.Errorf("port %d can't be used: %w", port, err)
	}
	return l.(*net.TCPListener), nil
}

// member is one life of an agent.
type member struct {
	at   string // HOST:PORT of its listener
	port int
	done chan struct{} // closed when nothing of it is left
	tail *subprocess.Tail
	how  string // how it ended, set before done is closed

	// Guarded by the fleet's mu.
	child    keeper.Child // nil before it is started
	stopping bool         // somebody wants it to end
	state    State
}

// Start serves the agent of a place and answers when its card does. l, which Start closes, is where it is served. When ctx ends before, the agent is ended.
func (f *Fleet) Start(ctx context.Context, place string, l *net.TCPListener) (Agent, error) {
	m := &member{at: l.Addr().String(), port: l.Addr().(*net.TCPAddr).Port, done: make(chan struct{}), tail: &subprocess.Tail{Max: tailSize}}
	if err := f.enter(ctx, place, m); err != nil {
		return Agent{}, errors.Join(err, l.Close())
	}
	first, err := f.spawn(ctx, place, m, l)
	if err != nil {
		f.mu.Lock()
		m.state.Fault = "it can't be started: " + err.Error()
		f.mu.Unlock()
		close(m.done)
		f.work.Done()
		return Agent{}, fmt.Errorf("start the agent: %w", err)
	}
	ready, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("it didn't answer within %s%w", startTime, errLate))
	defer cancel()
	f.mu.Lock()
	stopped := m.stopping // before there was anything to end
	f.mu.Unlock()
	var a Agent
	if !stopped {
		a, err = f.await(ready, m, first)
	}
	f.mu.Lock()
	stopped = m.stopping
	if err == nil && !stopped {
		select {
		case <-m.done:
			err = errors.New("it " + m.how)
		default:
			m.state = State{Running: true, Agent: a, Port: m.port}
		}
	}
	f.mu.Unlock()
	switch {
	case stopped:
		f.end(m)
		return Agent{}, errors.New("the agent was stopped before it was served")
	case err == nil:
		return a, nil
	}
	f.end(m)
	if late := errors.Is(err, errLate); late {
		err = fmt.Errorf("%w%s", err, m.last())
	}
	err = fmt.Errorf("the agent can't be served: %w", err)
	f.mu.Lock()
	m.state.Fault = err.Error()
	f.mu.Unlock()
	return Agent{}, err
}

// errLate is a mark without words: an agent that took too long.
var errLate = errors.New("")

// enter takes the place of an agent that is over, or of one that is being ended once it is.
func (f *Fleet) enter(ctx context.Context, place string, m *member) error {
	for {
		ending, err := f.tryEnter(place, m)
		if ending == nil {
			return err
		}
		select {
		case <-ending:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Fleet) tryEnter(place string, m *member) (ending <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	if have := f.of[place]; have != nil {
		select {
		case <-have.done:
		default:
			if have.stopping {
				return have.done, nil
			}
			return nil, ErrRunning
		}
	}
	f.of[place] = m
	f.work.Add(1)
	return nil, nil
}

// spawn starts the process and what waits for its end.
func (f *Fleet) spawn(ctx context.Context, place string, m *member, l *net.TCPListener) (<-chan []byte, error) {
	file, err := l.File()
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd, err := f.o.Command(context.WithoutCancel(ctx)) // who starts it doesn't wait for its end
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = place, w, m.tail, time.Second
	cmd.ExtraFiles = []*os.File{file}
	child, err := keeper.Begin(f.o.Keeper, cmd, stopTime)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	f.mu.Lock()
	m.child = child
	f.mu.Unlock()
	first, read := make(chan []byte, 1), make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, lineSize)
		switch {
		case lines.Scan():
			first <- lines.Bytes()
		case errors.Is(lines.Err(), bufio.ErrTooLong):
			first <- []byte{} // what is that long says nothing
		default:
			first <- nil
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	go func() {
		defer f.work.Done()
		how := "ended"
		if err := child.Wait(); err != nil {
			how = err.Error()
		}
		_ = r.Close()
		<-read
		f.mu.Lock()
		m.how = how + m.last()
		if m.state = (State{Fault: "the agent " + m.how}); m.stopping {
			m.state.Fault = ""
		}
		f.mu.Unlock()
		close(m.done)
	}()
	return first, nil
}

// last is the end of what an agent said, as it follows how it ended.
func (m *member) last() string {
	lines := m.tail.Last(tailLines)
	for i, line := range lines {
		lines[i] = diag.Clean(line)
	}
	if len(lines) == 0 {
		return ""
	}
	return "; it said: " + strings.Join(lines, " | ")
}

// await waits until an agent says where it is, and its card answers there.
func (f *Fleet) await(ctx context.Context, m *member, first <-chan []byte) (Agent, error) {
	var a Agent
	var line []byte
	select {
	case line = <-first:
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
	if line == nil { // it ended, or is about to
		select {
		case <-m.done:
			return a, errors.New("it " + m.how)
		case <-ctx.Done():
			return a, context.Cause(ctx)
		}
	}
	if err := json.Unmarshal(line, &a); err != nil || a.URL == "" {
		return a, errors.New("it doesn't say where it is")
	}
	if !strings.HasPrefix(a.URL, "http://"+m.at+"/") { // nobody is asked, and people are told, of what isn't its own
		return a, fmt.Errorf("it says that it is at %s, and it was to be at %s", diag.Repr(a.URL), m.at)
	}
	c, err := a2a.New(a.URL, nil)
	if err != nil {
		return a, err
	}
	if _, err := c.Card(ctx); err != nil {
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		return a, err
	}
	return a, nil
}

// end ends an agent that was started and waits until nothing of it is left.
func (f *Fleet) end(m *member) {
	f.mu.Lock()
	m.stopping = true
	f.mu.Unlock()
	subprocess.StopBy(m.child.Signal, m.done, 0, stopTime)
}

// Stop ends the agent of a place, waits until nothing of it is left, and forgets how it was; none is no fault.
func (f *Fleet) Stop(place string) {
	f.mu.Lock()
	m := f.of[place]
	if m == nil {
		f.mu.Unlock()
		return
	}
	m.stopping = true // one that is being started is ended by who starts it
	started := m.child != nil
	f.mu.Unlock()
	if started {
		f.end(m)
	}
	<-m.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[place] == m {
		delete(f.of, place)
	}
}

// Look tells how the agent of a place is.
func (f *Fleet) Look(place string) State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.of[place]; m != nil {
		return m.state
	}
	return State{}
}

// Close ends all agents and waits until nothing of them is left. No more are started.
func (f *Fleet) Close(context.Context) error {
	f.mu.Lock()
	f.closed = true
	var all []*member
	for _, m := range f.of {
		m.stopping = true
		if m.child != nil {
			all = append(all, m)
		}
	}
	f.mu.Unlock()
	for _, m := range all {
		f.work.Go(func() { f.end(m) })
	}
	f.work.Wait()
	return nil
}
