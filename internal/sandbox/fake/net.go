package fake

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Dial connects to what Listen opened in the same box.
func (h *handle) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	h.m.mu.Lock()
	l := h.m.ports[key(network, addr)]
	h.m.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Addr: address{network, addr}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	if l == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Listen opens an address in the box. Port 0 takes a free one.
func (h *handle) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if host, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		for n := 40000; ; n++ {
			addr = net.JoinHostPort(host, strconv.Itoa(n))
			if h.m.ports[key(network, addr)] == nil {
				break
			}
		}
	}
	if h.m.ports[key(network, addr)] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: address{network, addr}, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{m: h.m, addr: address{network, addr}, conns: make(chan net.Conn), done: make(chan struct{})}
	h.m.ports[key(network, addr)] = l
	return l, nil
}

func key(network, addr string) string {
	if strings.HasPrefix(network, "tcp") {
		network = "tcp"
		addr = strings.Replace(addr, "localhost:", "127.0.0.1:", 1)
	}
	return network + " " + addr
}

type listener struct {
	m     *Machine
	addr  address
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return accepted{c, l.Addr()}, nil
	case <-l.done:
		return nil, fmt.Errorf("accept %s: %w", l.addr, net.ErrClosed)
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.ports, key(l.addr.network, l.addr.addr))
	})
	return nil
}

// Addr is a *net.TCPAddr where the address is one.
func (l *listener) Addr() net.Addr {
	if at, err := netip.ParseAddrPort(l.addr.addr); err == nil && strings.HasPrefix(l.addr.network, "tcp") {
		return net.TCPAddrFromAddrPort(at)
	}
	return l.addr
}

// accepted is a connection that tells where it came in.
type accepted struct {
	net.Conn
	local net.Addr
}

func (c accepted) LocalAddr() net.Addr { return c.local }

type address struct{ network, addr string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.addr }

// Listen opens an address in the program's box, as Box.Listen does. The program closes it.
func (p *Proc) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	return (&handle{m: p.Machine}).Listen(ctx, network, addr)
}

// Dial connects from within the program's box, as Box.Dial does.
func (p *Proc) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&handle{m: p.Machine}).Dial(ctx, network, addr)
}
