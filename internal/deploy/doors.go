package deploy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// doors are handlers that are served in a box, each at an address of its own. The zero value has none.
type doors struct {
	quiet bool // what their servers find wrong with connections is told nowhere

	mu      sync.Mutex
	servers []*http.Server
	serving sync.WaitGroup
}

// open serves a handler until close, or until the box's end: also after ctx's.
func (d *doors) open(ctx context.Context, box guest.Box, address string, h http.Handler) (net.Addr, error) {
	l, err := box.Listen(context.WithoutCancel(ctx), "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	if d.quiet {
		s.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	}
	d.mu.Lock()
	d.servers = append(d.servers, s)
	d.mu.Unlock()
	d.serving.Go(func() { _ = s.Serve(l) })
	return l.Addr(), nil
}

func (d *doors) close() {
	d.mu.Lock()
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	for _, s := range servers {
		_ = s.Close()
	}
	d.serving.Wait()
}
