package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Handler is the environment over HTTP. It reports everything that is wrong with how the environment was put together. Call it once, after
// everything was added, and Close when it is served no more.
func (e *Env) Handler() (http.Handler, error) {
	if err := e.resolve(); err != nil {
		return nil, fmt.Errorf("put the environment %s together: %w", e.name, err)
	}
	card, err := e.makeCard()
	if err != nil {
		return nil, fmt.Errorf("put the environment %s together: %w", e.name, err)
	}
	e.mu.Lock()
	e.card = card
	e.mu.Unlock()
	mux := &routes{mux: http.NewServeMux()}
	mux.handle("GET "+wire.CardPath, http.HandlerFunc(e.serveCard))
	mux.handle("POST "+wire.DataPath, http.HandlerFunc(e.serveData))
	for _, x := range e.extensions {
		mux.handle(x.verb+" "+x.path, e.serveExtension(x))
	}
	if e.access != nil {
		mux.handle("POST "+wire.DisableToolPath, e.serveAccess(true))
		mux.handle("POST "+wire.EnableToolPath, e.serveAccess(false))
	}
	mux.handle(wire.MCPPath, newMCP(e))
	for _, p := range []string{"/health", "/ready"} {
		mux.handle("GET "+p, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, []byte(`{"status":"ok"}`))
		}))
	}
	for _, r := range e.routes {
		mux.handle(r.pattern, r.handler)
	}
	if mux.err != nil {
		return nil, fmt.Errorf("put the environment %s together: %w", e.name, mux.err)
	}
	if e.wrap != nil {
		return e.wrap(mux.mux), nil
	}
	return mux.mux, nil
}

// routes makes an error of what a ServeMux panics at.
type routes struct {
	mux *http.ServeMux
	err error
}

func (r *routes) handle(pattern string, h http.Handler) {
	defer func() {
		if p := recover(); p != nil && r.err == nil {
			r.err = fmt.Errorf("route %q can't be served beside the others", pattern)
		}
	}()
	r.mux.Handle(pattern, h)
}

func (e *Env) serveCard(w http.ResponseWriter, r *http.Request) {
	card := e.Card()
	if e.children != nil {
		card.Children = e.children(r.Context())
	}
	b, err := encode(card)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, b)
}

// Address is where Serve listens: MCP_HOST and MCP_PORT, by default every interface at port 18765.
func (e *Env) Address() (string, error) {
	host, _ := e.lookup(wire.HostVariable)
	port := strconv.Itoa(wire.DefaultPort)
	if p, ok := e.lookup(wire.PortVariable); ok && p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 65535 {
			return "", fmt.Errorf("%s: %q is no port", wire.PortVariable, p)
		}
		port = p
	}
	return net.JoinHostPort(cmp.Or(host, wire.DefaultHost), port), nil
}

// Serve serves the environment at its Address until ctx ends, then lets calls in flight finish for five seconds.
func (e *Env) Serve(ctx context.Context) error {
	addr, err := e.Address()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve the environment %s: %w", e.name, err)
	}
	return e.ServeListener(ctx, l)
}

// ServeListener is Serve on a listener, which it closes.
func (e *Env) ServeListener(ctx context.Context, l net.Listener) error {
	h, err := e.Handler()
	if err != nil {
		l.Close()
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return errors.Join(fmt.Errorf("serve the environment %s: %w", e.name, err), e.Close(ctx))
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	err = e.Close(grace) // first, since streams of sessions never end by themselves
	if s.Shutdown(grace) != nil {
		s.Close() // what is still open is cut
	}
	if serr := <-done; serr != nil && !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return fmt.Errorf("serve the environment %s: %w", e.name, err)
	}
	return nil
}

// How long calls may finish when a server ends, and how long they have to notice that they are cancelled.
const (
	graceful = 5 * time.Second
	abrupt   = time.Second
)

// Close ends all MCP sessions, once what they asked is answered; when ctx ends before, calls of tools are cancelled. A tool that ignores that is
// left behind, and the error says so.
func (e *Env) Close(ctx context.Context) error {
	e.mu.Lock()
	server, idle := e.mcp, e.quiet
	if idle == nil {
		idle = make(chan struct{})
		if e.posts == 0 {
			close(idle)
		} else {
			e.quiet = idle
		}
	}
	e.mu.Unlock()
	if server == nil {
		return nil
	}
	select {
	case <-idle:
	case <-ctx.Done():
		e.mu.Lock()
		for _, cancel := range e.calls {
			cancel()
		}
		e.mu.Unlock()
		t := time.NewTimer(abrupt)
		defer t.Stop()
		select {
		case <-idle:
		case <-t.C:
			return errors.New("tools that were cancelled go on")
		}
	}
	for s := range server.Sessions() {
		_ = s.Close() // an error is one of a session that is gone
	}
	return nil
}

func (e *Env) enter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.posts++
}

func (e *Env) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.posts--; e.posts == 0 && e.quiet != nil {
		close(e.quiet)
		e.quiet = nil
	}
}
