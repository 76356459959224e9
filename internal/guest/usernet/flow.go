package usernet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"agentenv.internal/agentenv/internal/guest"
)

// acceptTCP decides on one SYN of the box, in a goroutine of its own, and carries the connection. The box's handshake is finished when the
// other side's is, so that "refused" means refused.
func (n *network) acceptTCP(ctx context.Context, r *tcp.ForwarderRequest) {
	if !n.enter() {
		r.Complete(true)
		return
	}
	defer n.flows.Done()
	_, dst := flow(r.ID())
	if dst.Port() == 53 && (dst.Addr() == guest.DNS4 || dst.Addr() == guest.DNS6) {
		if in, _ := finish(r); in != nil {
			n.hold(n.tcp, target{addr: dst.Addr(), port: 53}, "tcp", func() { n.dns.serveTCP(ctx, in) }, func() { in.Close() })
		}
		return
	}
	t, why := n.destination(dst.Addr(), dst.Port())
	if why != "" {
		n.block("tcp", t, why)
		r.Complete(true)
		return
	}
	n.hold(n.tcp, t, "tcp", func() {
		out, err := n.dialer.dial(ctx, "tcp", t)
		if err != nil {
			n.dialFailed("tcp", t, err)
			r.Complete(true)
			return
		}
		in, ep := finish(r)
		if in == nil {
			out.Close()
			return
		}
		carry(ctx, in, ep, out)
	}, func() { r.Complete(true) })
}

// hold runs f in one of the places, or full where none is free.
func (n *network) hold(places chan struct{}, t target, proto string, f, full func()) {
	select {
	case places <- struct{}{}:
	default:
		n.block(proto, t, WhyFlows)
		full()
		return
	}
	defer func() { <-places }()
	f()
}

// finish ends the box's handshake; nil when the box has gone.
func finish(r *tcp.ForwarderRequest) (*gonet.TCPConn, tcpip.Endpoint) {
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	r.Complete(err != nil)
	if err != nil {
		return nil, nil
	}
	ep.SocketOptions().SetKeepAlive(true)
	return gonet.NewTCPConn(&wq, ep), ep
}

// outside is what both a plain connection and one through a proxy can do.
type outside interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// carry copies both ways until both sides have ended, each by itself; a reset of one is a reset of the other. It closes both.
func carry(ctx context.Context, in *gonet.TCPConn, ep tcpip.Endpoint, conn net.Conn) {
	out := conn.(outside)
	var once sync.Once
	abort := func() {
		once.Do(func() {
			_ = out.SetLinger(0)
			out.Close()
			ep.Abort()
		})
	}
	stop := context.AfterFunc(ctx, abort)
	defer stop()
	var up sync.WaitGroup
	up.Go(func() {
		if copyAll(out, in) != nil || out.CloseWrite() != nil {
			abort()
		}
	})
	if copyAll(in, out) != nil || in.CloseWrite() != nil {
		abort()
	}
	up.Wait()
	out.Close()
	in.Close()
}

// chunk is what copies go through.
type chunk [64 << 10]byte

func copyAll(dst io.Writer, src io.Reader) error {
	buf := new(chunk)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// acceptUDP decides on the first packet between two ports.
func (n *network) acceptUDP(ctx context.Context, r *udp.ForwarderRequest) {
	src, dst := flow(r.ID())
	t, why := n.destination(dst.Addr(), dst.Port())
	refuse := func(why string) {
		n.block("udp", t, why)
		n.link.send([][]byte{prohibited(udpHead(src, dst), src.Addr(), dst.Addr())})
	}
	if why != "" {
		refuse(why)
		return
	}
	select {
	case n.udp <- struct{}{}:
	default:
		refuse(WhyFlows)
		return
	}
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	if err != nil {
		<-n.udp
		return
	}
	in := gonet.NewUDPConn(&wq, ep)
	n.flows.Go(func() {
		defer func() { <-n.udp }()
		defer in.Close()
		out, err := n.dialer.dial(ctx, "udp", t)
		if err != nil {
			n.dialFailed("udp", t, err)
			n.link.send([][]byte{prohibited(udpHead(src, dst), src.Addr(), dst.Addr())})
			return
		}
		exchange(ctx, in, out)
	})
}

// exchange carries packets both ways until none has come for udpIdle. It closes both.
func exchange(ctx context.Context, in, out net.Conn) {
	end := func() {
		in.Close()
		out.Close()
	}
	stop := context.AfterFunc(ctx, end)
	defer stop()
	idle := time.AfterFunc(udpIdle, end)
	defer idle.Stop()
	packets := func(dst, src net.Conn) {
		defer end()
		buf := new(chunk)
		for {
			n, err := src.Read(buf[:])
			if err != nil {
				return
			}
			idle.Reset(udpIdle)
			if _, err := dst.Write(buf[:n]); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}
	var back sync.WaitGroup
	back.Go(func() { packets(in, out) })
	packets(out, in)
	back.Wait()
}

// serveDNS answers the questions that come by UDP until ctx ends.
func (n *network) serveDNS(ctx context.Context, c *gonet.UDPConn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	places := make(chan struct{}, maxQueries)
	buf := make([]byte, 4096)
	for {
		k, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			continue // it asks again
		}
		query := append([]byte(nil), buf[:k]...)
		n.flows.Go(func() {
			defer func() { <-places }()
			if reply := n.dns.answer(ctx, query, false); reply != nil {
				_, _ = c.WriteTo(reply, from)
			}
		})
	}
}
