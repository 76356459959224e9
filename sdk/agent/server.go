package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Handler is the agent over HTTP. It reports everything that is wrong with how the agent was put together. Call it once, and Close when it is
// served no more.
func (a *Agent) Handler() (http.Handler, error) {
	if err := a.resolve(); err != nil {
		return nil, fmt.Errorf("put the agent %s together: %w", a.name, err)
	}
	mux := &routes{mux: http.NewServeMux()}
	for _, p := range []string{wire.AgentCardPath, wire.AgentCardPathNew} {
		mux.handle("GET "+p, http.HandlerFunc(a.serveCard))
	}
	mux.handle("POST "+wire.A2APath, http.HandlerFunc(a.serveRPC))
	mux.handle("GET "+wire.A2AHealthPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
	}))
	for _, x := range a.extensions {
		for _, o := range x.ops {
			mux.handle(o.verb+" "+o.path, a.serveOperation(x.card.URI, o))
		}
	}
	if a.peers != nil {
		mux.handle(PeerToolsPath, a.peerTools())
	}
	for _, r := range a.routes {
		mux.handle(r.pattern, r.handler)
	}
	if mux.err != nil {
		return nil, fmt.Errorf("put the agent %s together: %w", a.name, mux.err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.learnPort(r)
		// Not through the ServeMux, which answers paths with dot segments by a redirect.
		if a.staging.max > 0 && strings.HasPrefix(r.URL.Path, stagingPath+"/") {
			a.staging.serve(w, r)
			return
		}
		mux.mux.ServeHTTP(w, r)
	}), nil
}

// learnPort notes the port that requests come in at, by which the agent reaches itself.
func (a *Agent) learnPort(r *http.Request) {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && a.port.Load() == 0 {
		a.port.Store(int64(addr.Port))
	}
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

func (a *Agent) serveCard(w http.ResponseWriter, r *http.Request) {
	b, err := encode(a.Card())
	if err != nil {
		http.Error(w, a.crash(r.Context(), "card", err), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, "application/json", b)
}

// Address is where Serve listens: A2A_HOST and A2A_PORT, by default every interface at port 8000.
func (a *Agent) Address() (string, error) {
	host, _ := a.lookup(HostVariable)
	port := strconv.Itoa(wire.DefaultA2APort)
	if p, ok := a.lookup(PortVariable); ok && p != "" {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 65535 {
			return "", fmt.Errorf("%s: %q is no port", PortVariable, p)
		}
		port = p
	}
	return net.JoinHostPort(cmp.Or(host, "0.0.0.0"), port), nil
}

// How long a server that is told to end waits for what it is answering.
const graceful = 5 * time.Second

// Serve serves the agent at its Address until ctx ends. Then tasks are cancelled, and what is being answered may finish for five seconds.
func (a *Agent) Serve(ctx context.Context) error {
	addr, err := a.Address()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve the agent %s: %w", a.name, err)
	}
	return a.ServeListener(ctx, l)
}

// ServeListener is Serve on a listener, which it closes.
func (a *Agent) ServeListener(ctx context.Context, l net.Listener) error {
	h, err := a.Handler()
	if err != nil {
		l.Close()
		return err
	}
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		a.port.Store(int64(addr.Port))
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return errors.Join(fmt.Errorf("serve the agent %s: %w", a.name, err), a.Close(ctx))
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	err = a.Close(grace) // first, since streams and blocking calls end with their tasks
	if s.Shutdown(grace) != nil {
		s.Close() // what is still open is cut
	}
	if serr := <-done; serr != nil && !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return fmt.Errorf("serve the agent %s: %w", a.name, err)
	}
	return nil
}

// Close cancels all tasks, waits for their turns no longer than ctx lasts, and removes what the agent made for itself. A turn that ignores its
// context is left behind, and the error says so.
func (a *Agent) Close(ctx context.Context) error {
	return errors.Join(a.tasks.close(ctx), a.skills.close(), a.staging.close())
}
