package deploy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
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

// doorsTried is how many ports are tried for a door.
const doorsTried = 256

// openFrom serves a handler at the first port from port on that nothing in the box listens at, and answers its address: agents that share a sandbox have
// doors beside each other.
func (d *doors) openFrom(ctx context.Context, box guest.Box, port int, h http.Handler) (address string, err error) {
	for last := port + doorsTried; port < last; port++ {
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if _, err = d.open(ctx, box, address, h); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return address, err
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
