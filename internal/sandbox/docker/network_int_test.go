//go:build integration && linux

package docker

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// greeter is a server of the host that counts its visitors.
func greeter(t *testing.T, addr string) (port string, visitors *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	visitors = &atomic.Int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visitors.Add(1)
			_, _ = io.WriteString(c, "welcome\n")
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, visitors
}

// hostLoopback opens the host's loopback to a box, by the gateway.
func hostLoopback() sandbox.Spec {
	return sandbox.Spec{Tied: true, Network: sandbox.NetAllow, Egress: sandbox.Egress{
		Hosts: []string{"localhost"}, CIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}}
}

// bits of capabilities that no command may have: CAP_NET_ADMIN and CAP_NET_RAW.
const netCapabilities = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW

// attempts are ways out of a box's network that a program in it may try. Each is nil when it worked.
var attempts = map[string]func() error{
	"a raw socket":      func() error { return opens(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"a raw IPv6 socket": func() error { return opens(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
	"a packet socket":   func() error { return opens(unix.AF_PACKET, unix.SOCK_RAW, 0x300) },
	"the interface taken down": func() error {
		return setInterface(unix.SIOCSIFFLAGS, func(i *unix.Ifreq) { i.SetUint16(0) })
	},
	"another address for itself": func() error {
		return setInterface(unix.SIOCSIFADDR, func(i *unix.Ifreq) { _ = i.SetInet4Addr([]byte{10, 0, 2, 9}) })
	},
	"another size of packets": func() error {
		return setInterface(unix.SIOCSIFMTU, func(i *unix.Ifreq) { i.SetUint32(1280) })
	},
	"no way to everywhere":   func() error { return route(unix.RTM_DELROUTE) },
	"another way":            func() error { return route(unix.RTM_NEWROUTE) },
	"the box's TUN":          func() error { return opensTUN("eth0") },
	"a TUN of its own":       func() error { return opensTUN("tun7") },
	"a device for a TUN":     func() error { return unix.Mknod("/tmp/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))) },
	"the capability taken":   func() error { return raise() },
	"a net namespace":        func() error { return unix.Unshare(unix.CLONE_NEWNET) },
	"PID 1's net namespace":  func() error { return entersNet("/proc/1/ns/net") },
	"PID 1's descriptors":    opensPID1,
	"a setting of addresses": func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) },
}

func opens(family, kind, proto int) error {
	fd, err := unix.Socket(family, kind, proto)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func setInterface(what uint, to func(*unix.Ifreq)) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("eth0")
	if err != nil {
		return err
	}
	to(ifr)
	return unix.IoctlIfreq(fd, what, ifr)
}

func route(what uint16) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := make([]byte, 16+12+8)
	msg[0], msg[4], msg[5], msg[6] = byte(len(msg)), byte(what), byte(what>>8), 5 // request, acknowledge
	if what == unix.RTM_NEWROUTE {
		msg[7] = 4 // create
	}
	copy(msg[16:], []byte{unix.AF_INET, 0, 0, 0, 254, 3, 0, 1})
	copy(msg[28:], []byte{8, 0, unix.RTA_GATEWAY, 0, 10, 0, 2, 2})
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n >= 20 && b[16]|b[17]|b[18]|b[19] != 0 {
		return unix.EPERM
	}
	return nil
}

func opensTUN(name string) error {
	fd, err := unix.Open(guest.TUNDevice, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
}

func raise() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	have[0].Effective |= netCapabilities
	have[0].Permitted |= netCapabilities
	return unix.Capset(&head, &have[0])
}

// opensPID1 tries every descriptor that PID 1 has, its TUN's among them while it had one.
func opensPID1() error {
	for fd := range 64 {
		if f, err := os.Open("/proc/1/fd/" + strconv.Itoa(fd)); err == nil {
			return f.Close()
		}
		pid1, err := unix.PidfdOpen(1, 0)
		if err != nil {
			continue
		}
		got, err := unix.PidfdGetfd(pid1, fd, 0)
		unix.Close(pid1)
		if err == nil {
			return unix.Close(got)
		}
	}
	return unix.EACCES
}

func entersNet(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// attempt tries everything in a box and writes what worked; addrs are what nobody may reach.
func attempt(addrs []string) int {
	for name, try := range attempts {
		if try() == nil {
			fmt.Println("it worked:", name)
		}
	}
	for _, addr := range addrs {
		if c, err := net.DialTimeout("tcp", addr, 2*time.Second); err == nil {
			c.Close()
			fmt.Println("it worked: reach", addr)
		}
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if !strings.HasPrefix(name, "Cap") {
			continue
		}
		if set, err := strconv.ParseUint(value, 16, 64); err != nil || set&netCapabilities != 0 {
			fmt.Println("it has", name, value)
		}
	}
	fmt.Println("all tried")
	return 0
}

// A box's network is the policy's alone: no program in it gets around that, as its root or as a user.
func TestNetworkIsHeld(t *testing.T) {
	p := openEngineProvider(t)
	secret, visitors := greeter(t, "0.0.0.0:0")
	addrs := []string{"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fd00:ec2::254]:80", "10.0.2.2:" + secret, "[fd00::2]:" + secret, "0.0.0.0:" + secret, "192.168.0.1:80"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own { // the engine's bridge among them
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, net.JoinHostPort(p.Addr().WithZone("").String(), secret))
		}
	}
	for name, spec := range map[string]sandbox.Spec{
		"allow_all": {Tied: true, Network: sandbox.NetAllowAll},
		"allowlist": {Tied: true, Network: sandbox.NetAllow, Egress: sandbox.Egress{Hosts: []string{"*.example.org"}, Ports: []uint16{443}}},
		"none":      {Tied: true},
		"published": {Tied: true, Publish: []sandbox.Port{{Box: 80}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Self = true
			info := start(t, p, spec)
			if info.Isolation.Level != sandbox.LevelContainer {
				t.Errorf("isolation %+v", info.Isolation)
			}
			for _, want := range []string{"private_addresses", "network_settings"} {
				i := slices.IndexFunc(info.Isolation.Probes, func(p sandbox.Probe) bool { return p.Name == want })
				if spec.Network == "" && want == "private_addresses" {
					continue
				}
				if i < 0 || !info.Isolation.Probes[i].OK {
					t.Errorf("%s is not among what held: %+v", want, info.Isolation.Probes)
				}
			}
			box, err := p.Connect(t.Context(), info.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			for _, user := range []string{"", "1000:1000"} {
				r, err := guest.Output(t.Context(), box, guest.Command{
					Argv: []string{sandbox.SelfPath}, Env: []string{roleVar + "=attempts " + strings.Join(addrs, " ")}, User: user, Dir: "/tmp", Timeout: time.Minute,
				}, guest.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if got := r.Stdout.String() + r.Stderr.String(); got != "all tried\n" {
					t.Errorf("as %q: %s", user, got)
				}
			}
			if n := visitors.Load(); n != 0 {
				t.Errorf("the host's server had %d visitors", n)
			}
			blocked, err := p.Blocked(t.Context(), info.ID)
			if err != nil {
				t.Fatal(err)
			}
			told := slices.ContainsFunc(blocked, func(b guest.Blocked) bool { return b.Addr == "169.254.169.254" && b.Why != "" })
			if told != (spec.Network != "") {
				t.Errorf("blocked: %+v", blocked)
			}
			wants := "10.0.2.3"
			if spec.Network == "" {
				wants = "no network"
			}
			if got := run(t, p, info.ID, "cat /etc/resolv.conf"); !strings.Contains(got, wants) {
				t.Errorf("resolv.conf: %q", got)
			}
		})
	}
}

// What the policy opens works, by address and by name, over both families.
func TestNetworkReaches(t *testing.T) {
	p := openEngineProvider(t)
	port, visitors := greeter(t, "127.0.0.1:0")
	info := start(t, p, hostLoopback())
	if info.Network != sandbox.NetAllow || len(info.Egress.CIDRs) != 2 {
		t.Errorf("recorded: %s %+v", info.Network, info.Egress)
	}
	port6, _ := greeter(t, "[::1]:0")
	for _, to := range []string{"10.0.2.2 " + port, "localhost. " + port, "fd00::2 " + port6} {
		if got := run(t, p, info.ID, "nc -w 5 "+to+" </dev/null"); got != "welcome\n" {
			t.Errorf("%s: %q", to, got)
		}
	}
	if n := visitors.Load(); n != 2 {
		t.Errorf("%d visitors", n)
	}
}

// hostOf is the network host of a box, by its lock; 0: there is none.
func hostOf(t *testing.T, p *Provider, id string) int {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(p.boxes, id, netName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		t.Fatal(err)
	}
	if l.Type == unix.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}

// A network host ends with its box however that ends, keeps none alive, and runs as nobody.
func TestNetworkHostLife(t *testing.T) {
	p := openEngineProvider(t)
	port, _ := greeter(t, "127.0.0.1:0")
	spec := hostLoopback()
	spec.Publish = []sandbox.Port{{Box: 8080}}
	info := start(t, p, spec)
	host := hostOf(t, p, info.ID)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	if err != nil || os.Geteuid() == 0 && strings.Contains(string(status), "Uid:\t0\t") {
		t.Errorf("the network host: %v %s", err, status)
	}
	other := sameState(t, p)
	if err := p.Close(); err != nil { // its box is tied, and goes with it
		t.Fatal(err)
	}
	eventually(t, "the network host is gone", func() bool { return syscall.Kill(host, 0) != nil })

	p = other
	e, err := p.engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec.Tied = false
	for name, end := range map[string]func(id string, host int) error{
		"killed by the engine": func(id string, _ int) error {
			_, err := e.ContainerKill(t.Context(), containerName(id), client.ContainerKillOptions{})
			return err
		},
		"its network host stopped": func(_ string, host int) error { return syscall.Kill(host, syscall.SIGSTOP) },
		"its network host killed":  func(_ string, host int) error { return syscall.Kill(host, syscall.SIGKILL) },
	} {
		info := start(t, p, spec)
		host := hostOf(t, p, info.ID)
		if host == 0 {
			t.Fatalf("%s: no network host", name)
		}
		if got := run(t, p, info.ID, "nc -w 5 10.0.2.2 "+port+" </dev/null"); got != "welcome\n" {
			t.Errorf("%s: %q", name, got)
		}
		if err := end(info.ID, host); err != nil {
			t.Fatal(err)
		}
		if err := p.Destroy(t.Context(), info.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+": the network host is gone", func() bool { return syscall.Kill(host, 0) != nil })
		if _, err := os.Stat(filepath.Join(p.boxes, info.ID)); err == nil {
			t.Errorf("%s: its folder is left", name)
		}
	}
	if l := left(t, p); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// A published port that somebody has is told of, and nothing is left.
func TestPublishedPortTaken(t *testing.T) {
	p := openEngineProvider(t)
	taken, _ := greeter(t, "127.0.0.1:0")
	host, err := strconv.ParseUint(taken, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Create(t.Context(), sandbox.Spec{Tied: true, Publish: []sandbox.Port{{Box: 80, Host: uint16(host)}}})
	if err == nil || !strings.Contains(err.Error(), "publish port 80") || !strings.Contains(err.Error(), taken) {
		t.Errorf("%v", err)
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) > 0 || len(left(t, p)) > 0 {
		t.Errorf("left: %v %v", infos, err)
	}
}
