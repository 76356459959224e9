package usernet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"agentenv.internal/agentenv/internal/guest"
)

// Bounds of one box, which is hostile: what it may have open, and the memory of one connection.
const (
	maxFlows    = 512
	maxUDPFlows = 256
	maxSYNs     = 128
	maxQueries  = 64
	maxWindow   = 1 << 20 // bytes that wait in one direction of a connection
	udpIdle     = 60 * time.Second
)

// Config is how a box's network is.
type Config struct {
	Policy *Policy
	Proxy  guest.Proxy
	Log    io.Writer // of what is blocked, lines of guest.Blocked; nil: none
	// Resolver is the host's; nil: the system's.
	Resolver *net.Resolver
}

// network is one box's network while it stands.
type network struct {
	policy  *Policy
	dialer  *dialer
	fakes   *fakes
	dns     *dns
	blocked *blockedLog
	link    *link
	stack   *stack.Stack
	flows   sync.WaitGroup

	mu   sync.Mutex
	over bool          // no flow begins any more
	tcp  chan struct{} // one place for each flow
	udp  chan struct{}
}

const nic tcpip.NICID = 1

// Serve is the network of the box whose TUN is given: it calls ready once packets are answered, and returns when ctx ends or the TUN is
// closed, with no flow left. It closes tun, which has to be non-blocking.
func Serve(ctx context.Context, tun *os.File, c Config, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer tun.Close()
	resolver := c.Resolver
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true}
	}
	p := &proxy{c.Proxy}
	n := &network{
		policy: c.Policy, fakes: newFakes(), blocked: newBlockedLog(c.Log), tcp: make(chan struct{}, maxFlows), udp: make(chan struct{}, maxUDPFlows),
		dialer: &dialer{policy: c.Policy, proxy: p, resolver: resolver, own: ownAddrs()},
	}
	n.dns = &dns{policy: c.Policy, fakes: n.fakes, fake: c.Policy.Lists() || p.set(), resolver: resolver, blocked: n.blocked}
	var err error
	if n.link, err = newLink(tun, n.refuse); err != nil {
		return fmt.Errorf("open the TUN: %w", err)
	}
	if err := n.start(ctx); err != nil {
		return fmt.Errorf("start the network stack: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { tun.Close() })
	defer stop()
	ready()
	err = n.link.pump()
	cancel()
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	n.flows.Wait()
	n.stack.Destroy()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// start makes the stack, which takes packets for every address.
func (n *network) start(ctx context.Context) error {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	n.stack = s
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	recv := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: 256 << 10, Max: maxWindow}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: 256 << 10, Max: maxWindow}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &recv, &send} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return errors.New(err.String())
		}
	}
	for _, err := range []tcpip.Error{s.CreateNIC(nic, n.link), s.SetPromiscuousMode(nic, true), s.SetSpoofing(nic, true)} {
		if err != nil {
			return errors.New(err.String())
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	fw := tcp.NewForwarder(s, 0, maxSYNs, func(r *tcp.ForwarderRequest) { n.acceptTCP(ctx, r) })
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, fw.HandlePacket)
	uf := udp.NewForwarder(s, func(r *udp.ForwarderRequest) { n.acceptUDP(ctx, r) })
	s.SetTransportProtocolHandler(udp.ProtocolNumber, uf.HandlePacket)
	for _, a := range []netip.Addr{guest.DNS4, guest.DNS6} {
		number := ipv4.ProtocolNumber
		if a.Is6() {
			number = ipv6.ProtocolNumber
		}
		at := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: 53}
		c, err := gonet.DialUDP(s, &at, nil, number)
		if err != nil {
			return err
		}
		n.flows.Go(func() { n.serveDNS(ctx, c) })
	}
	return nil
}

// enter counts a goroutine of the stack's as a flow; false when the network has ended.
func (n *network) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.flows.Add(1)
	}
	return !n.over
}

// destination is what the box's packet to a is meant for, and why it is refused; "" when it isn't.
func (n *network) destination(a netip.Addr, port uint16) (t target, why string) {
	a = a.Unmap()
	switch name, fake := n.fakes.name(a); {
	case fake && name == "":
		return target{addr: a, port: port}, WhyAddress
	case fake:
		t = target{name: name, port: port}
		if why := n.policy.Name(name); why != "" {
			return t, why
		}
		return t, n.policy.Port(port)
	case a == guest.Gateway4:
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case a == guest.Gateway6:
		a = netip.IPv6Loopback()
	}
	return target{addr: a, port: port}, n.policy.Addr(a, port)
}

func (n *network) block(proto string, t target, why string) {
	b := guest.Blocked{Proto: proto, Host: t.name, Port: t.port, Why: why}
	if t.addr.IsValid() {
		b.Addr = t.addr.String()
	}
	n.blocked.add(b)
}

// dialFailed logs a dial that the policy refused.
func (n *network) dialFailed(proto string, t target, err error) {
	if r := refused(err); r != nil {
		t.addr = r.addr
		n.block(proto, t, r.why)
	}
}

// refuse answers what is neither TCP nor UDP.
func (n *network) refuse(p packet) {
	if p.ping() || !p.control() {
		n.block("icmp", target{addr: p.dst}, WhyICMP)
		n.link.send([][]byte{prohibited(p.raw, p.src, p.dst)})
	}
}

// flow is the box's end and the other end of a packet's way.
func flow(id stack.TransportEndpointID) (src, dst netip.AddrPort) {
	local, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	remote, _ := netip.AddrFromSlice(id.RemoteAddress.AsSlice())
	return netip.AddrPortFrom(remote, id.RemotePort), netip.AddrPortFrom(local, id.LocalPort)
}
