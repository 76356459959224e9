package usernet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"agentenv.internal/agentenv/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside is a box for these tests: a second stack at the other end of a socket pair that stands for the TUN. Nothing of the machine is used
// but its loopback.
type inside struct {
	t     *testing.T
	stack *stack.Stack
	tun   *os.File
	log   *lines
	stop  func()
}

// lines collects what is blocked.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) blocked(t *testing.T) []guest.Blocked {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []guest.Blocked
	for line := range strings.Lines(l.buf.String()) {
		var b guest.Blocked
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, b)
	}
	return out
}

func serve(t *testing.T, c Config) *inside {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
	}
	b := &inside{t: t, tun: os.NewFile(uintptr(fds[1]), "box"), log: &lines{}}
	c.Log = b.log
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Serve(ctx, os.NewFile(uintptr(fds[0]), "tun"), c, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ep := channel.New(1024, guest.NetMTU, "")
	b.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := b.stack.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Prefix{guest.NetAddr4, guest.NetAddr6} {
		pa := tcpip.ProtocolAddress{Protocol: number(a.Addr()), AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(a.Addr().AsSlice()), PrefixLen: a.Bits()}}
		if err := b.stack.AddProtocolAddress(1, pa, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	b.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	var pumps sync.WaitGroup
	pumps.Go(func() {
		for p := ep.ReadContext(ctx); p != nil; p = ep.ReadContext(ctx) {
			b.send(p.ToView().AsSlice())
			p.DecRef()
		}
	})
	pumps.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			k, err := b.tun.Read(buf)
			if err != nil || k == 0 {
				return
			}
			proto := header.IPv4ProtocolNumber
			if buf[0]>>4 == 6 {
				proto = header.IPv6ProtocolNumber
			}
			p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:k])})
			ep.InjectInbound(proto, p)
			p.DecRef()
		}
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("serve: %v", err)
		}
		b.tun.Close()
		pumps.Wait()
		b.stack.Destroy()
	})
	t.Cleanup(b.stop)
	return b
}

func (b *inside) send(p []byte) { _, _ = b.tun.Write(p) }

func number(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func full(at netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(at.Addr().AsSlice()), Port: at.Port()}
}

func (b *inside) dial(at netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, b.stack, full(at), number(at.Addr()))
}

// try is what a program inside gets from a line-echoing server.
func (b *inside) try(at netip.AddrPort) error {
	c, err := b.dial(at)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != "hello" {
		err = errors.New("echo: " + string(got))
	}
	return err
}

// lookup asks the box's own resolver.
func (b *inside) lookup(network, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	return b.resolver(netip.AddrPortFrom(guest.DNS4, 53), false).LookupNetIP(ctx, network, host)
}

func (b *inside) resolver(at netip.AddrPort, overTCP bool) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if overTCP || strings.HasPrefix(network, "tcp") {
			return gonet.DialContextTCP(ctx, b.stack, full(at), number(at.Addr()))
		}
		to := full(at)
		return gonet.DialUDP(b.stack, nil, &to, number(at.Addr()))
	}}
}

// echo is a server on the host's loopback.
func echo(t *testing.T, network, addr string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Skipf("no %s here: %v", addr, err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// names is a resolver for the host's side: host names to addresses, which a test may change while it runs.
type names struct {
	mu sync.Mutex
	m  map[string][]netip.Addr
	n  int // questions
}

func (h *names) set(name string, addrs ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[string][]netip.Addr{}
	}
	h.m[name+"."] = nil
	for _, a := range addrs {
		h.m[name+"."] = append(h.m[name+"."], netip.MustParseAddr(a))
	}
}

func (h *names) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		pc.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil {
				continue
			}
			m.Response, m.Additionals = true, nil
			q := m.Questions[0]
			h.mu.Lock()
			h.n++
			addrs, known := h.m[q.Name.String()]
			h.mu.Unlock()
			if !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, a := range addrs {
				hd := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
				if a.Is4() && q.Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: hd, Body: &dnsmessage.AResource{A: a.As4()}})
				} else if a.Is6() && q.Type == dnsmessage.TypeAAAA {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: hd, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
				}
			}
			out, err := m.Pack()
			if err == nil {
				_, _ = pc.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func TestAllowlist(t *testing.T) {
	s4, s6 := echo(t, "tcp4", "127.0.0.1:0"), echo(t, "tcp6", "[::1]:0")
	hosts := &names{}
	hosts.set("ok.test", "127.0.0.1")
	hosts.set("a.sub.test", "127.0.0.1")
	hosts.set("other.test", "127.0.0.1")
	b := serve(t, Config{Resolver: hosts.resolver(t), Policy: policy(t, Rules{
		Mode: ModeList, Hosts: []string{"ok.test", "*.sub.test"}, CIDRs: loopback, Ports: []uint16{s4.Port(), s6.Port()},
	})})
	for _, host := range []string{"ok.test", "a.sub.test", "OK.test"} {
		addrs, err := b.lookup("ip", host)
		if err != nil || len(addrs) != 2 {
			t.Fatalf("%s: %v %v", host, addrs, err)
		}
		for _, a := range addrs {
			if a = a.Unmap(); !fake4.Contains(a) && !fake6.Contains(a) {
				t.Errorf("%s has the address %s", host, a)
			}
			if err := b.try(netip.AddrPortFrom(a, s4.Port())); err != nil {
				t.Errorf("%s at %s: %v", host, a, err)
			}
			if err := b.try(netip.AddrPortFrom(a, 1)); err == nil {
				t.Errorf("%s is reached at port 1", host)
			}
		}
	}
	before := hosts.asked()
	for _, host := range []string{"other.test", "x.ok.test", "sub.test", "c2VjcmV0.evil.test", "localhost.evil"} {
		if addrs, err := b.lookup("ip", host); err == nil || !strings.Contains(err.Error(), "no such host") {
			t.Errorf("%s: %v %v", host, addrs, err)
		}
	}
	if hosts.asked() != before {
		t.Error("a name that is not allowed was asked for on the host's side")
	}
	// The gateway is the host's loopback, which these CIDRs open.
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(guest.Gateway4, s4.Port()), netip.AddrPortFrom(guest.Gateway6, s6.Port())} {
		if err := b.try(at); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	for _, at := range []string{"1.2.3.4:443", "8.8.8.8:53", "169.254.169.254:80", "198.18.99.99:443", "[2001:4860:4860::8888]:443", "[fd00:c612::c612:6363]:443"} {
		if err := b.try(netip.MustParseAddrPort(at)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", at, err)
		}
	}
	b.stop()
	var why []string
	for _, l := range b.log.blocked(t) {
		why = append(why, l.Proto+" "+l.Host+l.Addr+": "+l.Why)
	}
	for _, want := range []string{
		"dns other.test: " + WhyHost, "tcp ok.test: " + WhyPort, "tcp 1.2.3.4: " + WhyPort, "tcp 198.18.99.99: " + WhyAddress, "dns c2VjcmV0.evil.test: " + WhyHost,
	} {
		if !slices.ContainsFunc(why, func(s string) bool { return strings.EqualFold(s, want) }) {
			t.Errorf("the log lacks %q: %q", want, why)
		}
	}
}

// TestAllowAll: public addresses only; what a name resolves to is judged when it is dialled.
func TestAllowAll(t *testing.T) {
	s := echo(t, "tcp4", "127.0.0.1:0")
	hosts := &names{}
	hosts.set("public.test", "93.184.215.14", "2606:2800:21f:cb07::1")
	hosts.set("mixed.test", "93.184.215.14", "10.0.0.1")
	hosts.set("inner.test", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1")
	hosts.set("old.test", "93.184.215.15")
	b := serve(t, Config{Resolver: hosts.resolver(t), Policy: policy(t, Rules{Mode: ModeAll})})
	for host, want := range map[string][]string{"public.test": {"93.184.215.14", "2606:2800:21f:cb07::1"}, "mixed.test": {"93.184.215.14"}, "old.test": {"93.184.215.15"}} {
		addrs, err := b.lookup("ip", host)
		var got []string
		for _, a := range addrs {
			got = append(got, a.Unmap().String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", host, got, err)
		}
	}
	if addrs, err := b.lookup("ip", "inner.test"); err == nil {
		t.Errorf("inner.test: %v", addrs)
	}
	if _, err := b.lookup("ip", "nowhere.test"); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("nowhere.test: %v", err)
	}
	for _, at := range []netip.AddrPort{
		netip.AddrPortFrom(guest.Gateway4, s.Port()), netip.AddrPortFrom(guest.Gateway6, s.Port()),
		netip.MustParseAddrPort("169.254.169.254:80"), netip.MustParseAddrPort("192.168.0.1:80"), netip.MustParseAddrPort("[fd00:ec2::254]:80"),
		netip.MustParseAddrPort("[64:ff9b::7f00:1]:80"), netip.MustParseAddrPort("[2002:7f00:1::]:80"), netip.MustParseAddrPort("100.100.100.200:80"),
	} {
		if err := b.try(at); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestRebinding: a name that was public when it was asked for and is private when it is dialled is refused, and so is a private address
// of an allowed name.
func TestRebinding(t *testing.T) {
	s := echo(t, "tcp4", "127.0.0.1:0")
	hosts := &names{}
	hosts.set("rebind.test", "93.184.215.14")
	hosts.set("mapped.test", "::ffff:127.0.0.1")
	hosts.set("six.test", "::1")
	b := serve(t, Config{Resolver: hosts.resolver(t), Policy: policy(t, Rules{Mode: ModeList, Hosts: []string{"*.test"}})})
	addrs, err := b.lookup("ip4", "rebind.test")
	if err != nil {
		t.Fatal(err)
	}
	hosts.set("rebind.test", "127.0.0.1")
	if err := b.try(netip.AddrPortFrom(addrs[0].Unmap(), s.Port())); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("rebound: %v", err)
	}
	for _, host := range []string{"mapped.test", "six.test"} {
		addrs, err := b.lookup("ip4", host)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.try(netip.AddrPortFrom(addrs[0].Unmap(), s.Port())); err == nil {
			t.Errorf("%s is reached", host)
		}
	}
	b.stop()
	if !slices.ContainsFunc(b.log.blocked(t), func(l guest.Blocked) bool {
		return l.Host == "rebind.test" && l.Addr == "127.0.0.1" && l.Why == WhyPrivate
	}) {
		t.Errorf("the log lacks the rebinding: %+v", b.log.blocked(t))
	}
}

// TestOwnAddress: an address of the host itself is refused although it is public; a CIDR opens it.
func TestOwnAddress(t *testing.T) {
	own := netip.MustParseAddr("93.184.215.14")
	for _, c := range []struct {
		rules Rules
		want  string
	}{
		{Rules{Mode: ModeAll}, WhyOwn},
		{Rules{Mode: ModeList, CIDRs: []netip.Prefix{netip.PrefixFrom(own, 32)}}, ""},
	} {
		d := &dialer{policy: policy(t, c.rules), own: func() []netip.Addr { return []netip.Addr{own} }}
		for _, spelled := range []string{"93.184.215.14:80", "[::ffff:93.184.215.14]:80"} {
			err := d.judge(target{addr: own, port: 80}, spelled)
			if r := refused(err); (r == nil) != (c.want == "") || r != nil && r.why != c.want {
				t.Errorf("%s %s: %v", c.rules.Mode, spelled, err)
			}
		}
	}
	if len(ownAddrs()()) == 0 {
		t.Error("this machine has no address")
	}
}

func TestUDP(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
	t.Cleanup(func() {
		pc.Close()
		<-done
	})
	at := netip.MustParseAddrPort(pc.LocalAddr().String())
	b := serve(t, Config{Policy: policy(t, Rules{Mode: ModeList, CIDRs: loopback})})
	to := full(netip.AddrPortFrom(guest.Gateway4, at.Port()))
	c, err := gonet.DialUDP(b.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	for _, size := range []int{1, 1400, 9000, 60000} {
		msg := bytes.Repeat([]byte{byte(size)}, size)
		if _, err := c.Write(msg); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<16)
		n, err := c.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], msg) {
			t.Fatalf("%d bytes: %d back, %v", size, n, err)
		}
	}
	// A refused packet is told of, so that its sender need not wait.
	to = full(netip.MustParseAddrPort("8.8.8.8:53"))
	d, err := gonet.DialUDP(b.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := d.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b.await(1)
	if !slices.ContainsFunc(b.log.blocked(t), func(l guest.Blocked) bool { return l.Proto == "udp" && l.Addr == "8.8.8.8" && l.Port == 53 }) {
		t.Errorf("the log lacks the packet: %+v", b.log.blocked(t))
	}
}

// TestForeignResolvers: neither another resolver nor the own one over TCP is a way past the names.
func TestForeignResolvers(t *testing.T) {
	b := serve(t, Config{Policy: policy(t, Rules{Mode: ModeList, Hosts: []string{"ok.test"}})})
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if addrs, err := b.resolver(netip.AddrPortFrom(guest.DNS6, 53), true).LookupNetIP(ctx, "ip4", "ok.test"); err != nil || len(addrs) != 1 {
		t.Errorf("over TCP and IPv6: %v %v", addrs, err)
	}
	if txt, err := b.resolver(netip.AddrPortFrom(guest.DNS4, 53), false).LookupTXT(ctx, "ok.test"); err == nil {
		t.Errorf("TXT: %q", txt)
	}
	if txt, err := b.resolver(netip.AddrPortFrom(guest.DNS4, 53), true).LookupTXT(ctx, "c2VjcmV0.evil.test"); err == nil {
		t.Errorf("TXT: %q", txt)
	}
	names, err := b.resolver(netip.AddrPortFrom(guest.DNS4, 53), false).LookupAddr(ctx, "198.18.0.1")
	if err != nil || len(names) != 1 || names[0] != "ok.test." {
		t.Errorf("PTR: %q %v", names, err)
	}
	if _, err := b.resolver(netip.MustParseAddrPort("8.8.8.8:53"), true).LookupNetIP(ctx, "ip4", "ok.test"); err == nil {
		t.Error("8.8.8.8 answers")
	}
}

// await waits until n destinations are blocked: what a box sends is dealt with on the other side.
func (b *inside) await(n int) {
	for deadline := time.Now().Add(5 * time.Second); len(b.log.blocked(b.t)) < n && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// TestPing: echo requests are refused with a message, not answered for every address.
func TestPing(t *testing.T) {
	b := serve(t, Config{Policy: policy(t, Rules{Mode: ModeAll})})
	src := guest.NetAddr4.Addr()
	icmp := append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, "ping"...)
	b.send(append(ipHead(src, netip.MustParseAddr("8.8.8.8"), unix.IPPROTO_ICMP, len(icmp)), icmp...))
	b.send(append(ipHead(src, netip.MustParseAddr("8.8.4.4"), 132, 4), 1, 2, 3, 4)) // SCTP
	b.send(append(ipHead(netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("8.8.1.1"), unix.IPPROTO_ICMP, len(icmp)), icmp...))
	b.await(2)
	b.stop()
	var got []string
	for _, l := range b.log.blocked(t) {
		got = append(got, l.Proto+" "+l.Addr)
	}
	if !slices.Equal(got, []string{"icmp 8.8.8.8", "icmp 8.8.4.4"}) {
		t.Errorf("blocked: %q", got)
	}
}

// TestFlowsAreCapped: a box that opens connections without end is refused more, and served again when it lets go.
func TestFlowsAreCapped(t *testing.T) {
	s := echo(t, "tcp4", "127.0.0.1:0")
	b := serve(t, Config{Policy: policy(t, Rules{Mode: ModeList, CIDRs: loopback})})
	at := netip.AddrPortFrom(guest.Gateway4, s.Port())
	var open []*gonet.TCPConn
	refusals := 0
	for range maxFlows + 20 {
		if c, err := b.dial(at); err != nil {
			refusals++
		} else {
			open = append(open, c)
		}
	}
	if len(open) != maxFlows || refusals != 20 {
		t.Errorf("%d open, %d refused", len(open), refusals)
	}
	for _, c := range open {
		c.Close()
	}
	deadline := time.Now().Add(5 * time.Second)
	for b.try(at) != nil {
		if time.Now().After(deadline) {
			t.Fatal("no connection after all were closed")
		}
	}
}
