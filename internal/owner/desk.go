package owner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/unixsocket"
)

var errStopped = errors.New("it was stopped while it started")

// desk is what the socket of an owner serves: a deployment can be stopped from the first moment on, and does the rest once it stands.
type desk struct {
	words Words
	stop  func()
	ready atomic.Pointer[http.Handler] // nil while the deployment starts
}

// open serves at a socket until close is called.
func (d *desk) open(ctx context.Context, path string) (closeDesk func(), err error) {
	l, err := unixsocket.Listen(ctx, path)
	if err != nil {
		return nil, err
	}
	return serve(l, d), nil
}

func (d *desk) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/stop" {
		Answer(rw, struct{}{}, nil)
		d.stop()
		return
	}
	if h := d.ready.Load(); h != nil {
		(*h).ServeHTTP(rw, r)
		return
	}
	Answer(rw, nil, fmt.Errorf("the %s is still starting; %s tells when it runs, %s ends it", d.words.Noun, d.words.List, d.words.Stop))
}

// serve serves h at l until end is called, which waits for the server, not for requests.
func serve(l net.Listener, h http.Handler) (end func()) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // ends when it is closed; a socket that fails before is found by who asks it
	}()
	return func() {
		_ = s.Close()
		<-ended
	}
}
