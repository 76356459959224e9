package host

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/stream"
)

// boxWire is what goes on in sandboxes of one life of a plugin: streams, commands, listeners.
type boxWire struct {
	streams  *stream.Mux
	refusing atomic.Int64 // connections that are being refused

	mu        sync.Mutex
	over      chan struct{} // closed with the life
	next      int
	execs     map[string]chan plugin.SandboxExited
	listeners map[string]*boxListener
}

// maxAccepted is how many connections may wait for Accept.
const maxAccepted = 256

func newBoxWire(notify func(method string, params any) error) *boxWire {
	return &boxWire{streams: stream.NewMux("h", notify), over: make(chan struct{}), execs: map[string]chan plugin.SandboxExited{}, listeners: map[string]*boxListener{}}
}

// close ends everything: the process is gone.
func (w *boxWire) close() {
	close(w.over)
	w.streams.Close()
}

// name makes a name for a command or listener.
func (w *boxWire) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return "h" + strconv.Itoa(w.next)
}

// Notify takes a notification and tells whether it was one of sandboxes. It never waits.
func (w *boxWire) Notify(method string, params json.RawMessage, later func(func())) bool {
	switch method {
	case plugin.NotifySandboxExit:
		var e plugin.SandboxExited
		if json.Unmarshal(params, &e) != nil {
			return true
		}
		w.mu.Lock()
		c := w.execs[e.Exec]
		delete(w.execs, e.Exec)
		w.mu.Unlock()
		if c != nil {
			c <- e // it has room for one
		}
		return true
	case plugin.NotifySandboxAccepted:
		var a plugin.SandboxAccepted
		if json.Unmarshal(params, &a) != nil {
			return true
		}
		w.mu.Lock()
		l := w.listeners[a.Listener]
		w.mu.Unlock()
		if l == nil || !l.offer(a) {
			w.refuse(a.Stream, later)
		}
		return true
	}
	return w.streams.Notify(method, params)
}

// refuse ends a connection that nobody takes. Of more than can be refused while the plugin doesn't read, nothing is said.
func (w *boxWire) refuse(stream string, later func(func())) {
	if w.refusing.Add(1) > maxAccepted {
		w.refusing.Add(-1)
		return
	}
	later(func() {
		defer w.refusing.Add(-1)
		w.streams.Refuse(stream)
	})
}

// begin enters a command; its end comes once.
func (w *boxWire) begin() (string, <-chan plugin.SandboxExited) {
	name, c := w.name(), make(chan plugin.SandboxExited, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.execs[name] = c
	return name, c
}

func (w *boxWire) forget(exec string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.execs, exec)
}

// boxListener is a socket in a sandbox that is accepted here.
type boxListener struct {
	l     *life
	s     *Sandboxes
	name  string
	net   string
	addr  net.Addr
	queue chan plugin.SandboxAccepted
	once  sync.Once
	done  chan struct{}
}

func (l *boxListener) offer(a plugin.SandboxAccepted) bool {
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case l.queue <- a:
		return true
	default:
		return false
	}
}

// Accept waits for the next connection.
func (l *boxListener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	case <-l.l.boxes.over:
		return nil, errors.Join(net.ErrClosed, guest.ErrGone)
	case a := <-l.queue:
		s, err := l.l.boxes.streams.Take(a.Stream)
		if err != nil {
			return nil, errors.Join(net.ErrClosed, err)
		}
		s.SetAddrs(l.addr, address(l.net, a.Address))
		return s, nil
	}
}

// Close closes the socket in the sandbox. Connections that nobody accepted are ended.
func (l *boxListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		w := l.l.boxes
		w.mu.Lock()
		delete(w.listeners, l.name)
		w.mu.Unlock()
		if l.l.p.enter() != nil { // the process is gone, or goes, with all that it listens to
			return
		}
		l.l.later(func() {
			defer l.l.p.work.Done()
			for {
				select {
				case a := <-l.queue:
					w.streams.Refuse(a.Stream)
					continue
				default:
				}
				break
			}
			ctx, cancel := context.WithTimeout(l.l.base(), killWait)
			defer cancel()
			_ = l.l.ask(ctx, l.s, plugin.MethodSandboxUnlisten, plugin.SandboxParams{Listener: l.name}, nil) // the end of the life closes it too
		})
	})
	return nil
}

// Addr is the socket's address in the sandbox.
func (l *boxListener) Addr() net.Addr { return l.addr }

// address is an address as package net has it.
func address(network, text string) net.Addr {
	if network == "unix" {
		return &net.UnixAddr{Name: text, Net: network}
	}
	if a, err := net.ResolveTCPAddr("tcp", text); err == nil && text != "" {
		return a
	}
	return boxAddr{network, text}
}

type boxAddr struct{ network, text string }

func (a boxAddr) Network() string { return a.network }
func (a boxAddr) String() string  { return a.text }

// enter makes the caller count as work until it is done.
func (p *Plugin) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	p.work.Add(1)
	return nil
}

// ask calls one life about sandboxes, and tells its errors as those of sandboxes.
func (l *life) ask(ctx context.Context, s *Sandboxes, method string, params plugin.SandboxParams, out *plugin.SandboxAnswer) error {
	if out == nil {
		out = &plugin.SandboxAnswer{}
	}
	leave, err := l.p.slot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.boxError(ctx, l.call(ctx, method, &Caller{Log: l.p.o.Log}, func(call string) any { return s.params(call, params) }, out))
}

// later does f in a goroutine that the plugin's end waits for. It is called while something counts as work.
func (l *life) later(f func()) { l.p.work.Go(f) }

// notify sends a notification, when the process is up.
func (l *life) notify(method string, params any) error {
	<-l.up
	if l.err != nil {
		return l.err
	}
	return l.proc.peer.Notify(method, params)
}
