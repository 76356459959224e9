package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/guest"
)

// door is a listener in a box whose connections go on to somewhere that the box itself can't reach.
type door struct {
	l    net.Listener
	ctx  context.Context //nolint:containedctx // the door's life
	stop context.CancelFunc
	dial func(ctx context.Context) (net.Conn, error)
	wg   sync.WaitGroup
}

// openDoor opens a door at an address of a box. It outlives ctx; close ends it, and so does the box's end.
func openDoor(ctx context.Context, box guest.Box, addr string, dial func(ctx context.Context) (net.Conn, error)) (*door, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l, err := box.Listen(ctx, "tcp", addr)
	if err != nil {
		stop()
		return nil, fmt.Errorf("open a door at %s of the sandbox: %w", addr, err)
	}
	d := &door{l: l, ctx: ctx, stop: stop, dial: dial}
	d.wg.Go(d.serve)
	return d, nil
}

func (d *door) serve() {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return
		}
		d.wg.Go(func() { d.pass(c) })
	}
}

// pass carries one connection until either end is done with it.
func (d *door) pass(in net.Conn) {
	defer in.Close()
	out, err := d.dial(d.ctx)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(d.ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			half, ok := way[0].(interface{ CloseWrite() error })
			if err != nil || !ok {
				_, _ = in.Close(), out.Close()
				return
			}
			_ = half.CloseWrite()
		})
	}
	both.Wait()
}

func (d *door) close() {
	d.stop()
	_ = d.l.Close()
	d.wg.Wait()
}

// errNoBackend: a frontend asked for a backend that isn't there yet.
var errNoBackend = errors.New("the backend has not been started")

// inwards opens a door in the box of a server.
func (s *Server) inwards(ctx context.Context, box guest.Box, addr string, dial func(ctx context.Context) (net.Conn, error)) error {
	d, err := openDoor(ctx, box, addr, dial)
	if err == nil {
		s.inward = append(s.inward, d)
	}
	return err
}

// shared is what the parts of a deployment share: its databases, and the backends of its websites, by name, as they are started.
type shared struct {
	dbs *envdb.Databases // nil: each has a file in its box
	mu  sync.Mutex
	by  map[string]*Server
}

// database is the URL of an environment's database, in its box.
func (b *shared) database(name string) string {
	if b.dbs == nil {
		return "sqlite:////tmp/" + fileName(name) + ".sqlite"
	}
	return b.dbs.URL(name)
}

func (b *shared) add(s *Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[string]*Server{}
	}
	b.by[s.Name] = s
}

func (b *shared) dial(ctx context.Context, name string) (net.Conn, error) {
	b.mu.Lock()
	s := b.by[name]
	b.mu.Unlock()
	if s == nil {
		return nil, errNoBackend
	}
	return s.box.Dial(ctx, "tcp", s.address())
}
