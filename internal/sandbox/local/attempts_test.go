package local_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// attempt is something that a command of a box tries and must fail at. Its script prints what it won, or nothing. One in Python calls
// the kernel itself, past the programs that might refuse by themselves: call(nr, args...) answers 0 or the errno.
type attempt struct{ name, shell, python string }

// surroundings are what the host has that attempts go for.
type surroundings struct {
	home, secret, root, port, abstract, socket string
	pid, parent                                int
}

// attempts is the red team's list, in the order of what is attacked. Bombs, races and signals have tests of their own in this package.
func attempts(s surroundings) []attempt {
	return []attempt{
		// Files of the host.
		{name: "see the home", shell: fmt.Sprintf("[ %q = /root ] || ls -d %q; ls -A /root; ls -d /home/*", s.home, s.home)},
		{name: "read a file of the host that everybody may read", shell: fmt.Sprintf("cat %q", s.secret)},
		{name: "see the state root", shell: fmt.Sprintf("ls -d %q", s.root)},
		{name: "read password hashes", shell: "cat /etc/shadow /etc/gshadow /etc/shadow- /etc/gshadow- /etc/sudoers"},
		{name: "read private keys", shell: "cat /etc/ssl/private/*"},
		{name: "read ssh host keys", shell: "cat /etc/ssh/ssh_host_*_key; ls -A /root/.ssh"},
		{name: "read VPN files", shell: "cat /etc/wireguard/* /etc/openvpn/*/* /etc/ipsec.secrets /etc/ppp/*-secrets /etc/NetworkManager/system-connections/*"},
		{name: "read cluster and cloud credentials", shell: "cat /etc/kubernetes/*.conf /etc/rancher/*/*.yaml /var/lib/kubelet/config.yaml /var/run/secrets/*/*/token; ls -d /root/.kube /root/.aws /root/.config /root/.docker"},
		{name: "read databases below /var", shell: "find /var/lib /var/log /var/spool /var/backups -type f | head -3"},
		{name: "see the host's temporary files", shell: "find /tmp /var/tmp /dev/shm /run -mindepth 1 ! -path /run/lock | head -3"},
		{name: "see the host's disks and settings below /sys", shell: "cat /sys/class/block/*/dev; ls /sys/fs/cgroup /sys/kernel; ls -d /sys/root /sys/upper* /sys/layer*"},
		{name: "leave the root by dots", shell: "ls -d /../../../../../../proc/1/root/etc; cd /proc/self/cwd/../../../../.. && [ -e .dockerenv ] && echo out"},
		{name: "open files by handles", python: "if call(304, -100, 0, 0) != 1 or call(303, -100, 0, 0, 0, 0) != 1: won('handles')"},
		{name: "link a file of the host", shell: "ln /etc/passwd /tmp/p && ln /usr/bin/env /usr/local/bin/e && [ $(stat -c %h /usr/bin/env) -gt 1 ] && echo linked"},

		// Mounts and roots.
		{name: "mount a file system", shell: "mount -t tmpfs x /mnt && echo mounted; mount --bind /etc /mnt && echo bound; umount /proc/sys && echo unmounted"},
		{name: "remount settings for writing", shell: "mount -o remount,rw /proc/sys && echo rw; mount -o remount,bind,rw /proc/sys && echo rw"},
		{name: "mount by the calls of today", python: "for nr in (165, 166, 428, 429, 430, 431, 432, 433, 442, 467):\n    if call(nr, 0, 0, 0, 0, 0) not in (1, 38): won(nr)"},
		{name: "change the root", shell: "chroot / true && echo chroot"},
		{name: "pivot the root", python: "if call(155, 0, 0) != 1 or call(161, 0) != 1: won('root')"},
		{name: "mount a control group and its release agent", shell: "mkdir /tmp/cg && mount -t cgroup -o memory c /tmp/cg && echo mounted; mount -t cgroup2 c /tmp/cg && echo mounted; find / -xdev -name release_agent"},
		{name: "use a file system of its own making", shell: "[ -e /dev/fuse ] && echo fuse; ls /dev/loop* /dev/mapper"},

		// Processes of the host, and PID 1.
		{name: "see processes of the host", shell: fmt.Sprintf("[ -d /proc/%d ] && [ %d -gt 200 ] && echo seen; ls -d /proc/[0-9]* | awk -F/ '$3 > 200'", s.pid, s.pid)},
		{name: "see the owner's environment", shell: "cat /proc/*/environ | tr '\\0' '\\n' | grep swordfish-of-the-owner; env | grep swordfish"},
		{name: "signal the owner", shell: fmt.Sprintf("kill -0 %d && echo reached", s.parent)},
		{name: "read PID 1", shell: "cat /proc/1/environ /proc/1/maps /proc/1/auxv; readlink /proc/1/fd/*; cat /proc/1/fd/*; ls /proc/1/root/ /proc/1/cwd/ /proc/1/map_files/*; readlink /proc/1/exe; head -c 1 /proc/1/mem"},
		{name: "write PID 1", shell: "echo x > /proc/1/mem && echo mem; echo x > /proc/1/comm && echo comm; echo 1 > /proc/1/oom_score_adj && echo oom; echo x > /proc/1/exe && echo exe; true"},
		{name: "signal PID 1", shell: "for s in $(seq 1 64); do kill -$s 1; done; sleep 0.05"},
		{name: "trace PID 1", python: "if call(101, 0x4206, 1, 0, 0) != 1 or call(101, 16, 1, 0, 0) != 1: won('ptrace')"},
		{name: "set PID 1's limits", python: "none = (ctypes.c_uint64 * 2)(0, 0)\nfor tid in (1, 2, 3):\n    for which in (0, 7, 9, 13):\n        if call(302, tid, which, ctypes.addressof(none), 0) != 1: won('%d %d' % (tid, which))"},
		{name: "slow PID 1 down", python: "zero, one = ctypes.c_int(0), ctypes.c_uint64(1)\nfor tid in (1, 2, 3):\n    for args in ((141, 0, tid, 19), (144, tid, 5, ctypes.addressof(zero)), (203, tid, 8, ctypes.addressof(one)), (251, 1, tid, 3 << 13)):\n        if call(*args) not in (1, 3): won('%d %d' % args[:2])"},
		{name: "read and write another's memory", python: "if call(310, 1, 0, 0, 0, 0, 0) != 1 or call(311, 1, 0, 0, 0, 0, 0) != 1 or call(440, 0, 0, 0, 0, 0) != 1: won('memory')"},
		{name: "take another's descriptors", python: "if call(438, 0, 0, 0) != 1 or call(312, 1, 1, 0, 0, 0) != 1: won('pidfd_getfd')"},
		{name: "enter PID 1's namespaces", shell: "for n in mnt net pid user uts ipc cgroup; do nsenter --$n=/proc/1/ns/$n true && echo $n; done"},
		{name: "overwrite the program that it was started by", python: "import os\nfor f in ('/proc/self/exe', '/proc/1/exe'):\n    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):\n        try:\n            os.close(os.open(f, flags))\n            won(f) if os.readlink(f).startswith('/memfd') or '1' in f else None\n        except OSError: pass"},

		// Namespaces and privileges.
		{name: "make a namespace", shell: "unshare -U true && echo user; unshare -m true && echo mnt; unshare -n true && echo net; unshare -u true && echo uts; unshare -Ur true && echo root"},
		{name: "make a namespace by the calls", python: "for flag in (0x10000000, 0x20000, 0x04000000, 0x40000000, 0x08000000, 0x02000000, 0x20000000, 0x80):\n    if call(272, flag) == 0: won('unshare %x' % flag)\n    if flag != 0x80 and call(56, flag | 17, 0, 0, 0, 0) != 1: won('clone %x' % flag)\nif call(308, 0, 0) != 1: won('setns')\nif call(435, 0, 0) != 38: won('clone3')"},
		{name: "allow namespaces again", shell: "echo 100 > /proc/sys/user/max_user_namespaces && echo set"},
		{name: "have capabilities beyond the box's own", shell: "grep -E '^Cap(Eff|Bnd|Prm)' /proc/self/status | grep -vE '(00000000a00005fb|0000000000000000)$'"},
		{name: "gain privileges by exec", shell: "grep NoNewPrivs /proc/self/status | grep -v '1$'"},
		{name: "give a program capabilities of the host", shell: "cp $(command -v grep) /tmp/g && setcap cap_sys_admin,cap_sys_ptrace+ep /tmp/g; /tmp/g ^CapEff /proc/self/status | grep -vE '(00000000a00005fb|0000000000000000)$'"},
		{name: "raise its limits", shell: "ulimit -c unlimited && echo core"},
		{name: "start the host's program for crashes", shell: "grep '^Max core' /proc/self/limits | grep -vE ' 1 +1 +bytes'"},
		{name: "watch the interrupts of the host", shell: "ls /proc/interrupts | xargs cat | head -c 100"},
		{name: "run before everybody else", shell: "chrt -f 50 true && echo fifo; nice -n -10 sh -c '[ $(nice) -lt 0 ] && echo nice'; ionice -c 1 true && echo io; true"},

		// The kernel.
		{name: "set the kernel", shell: "for f in kernel/core_pattern kernel/hostname kernel/modprobe vm/drop_caches kernel/sysrq net/ipv4/ip_forward; do echo 1 > /proc/sys/$f && echo $f; done; echo b > /proc/sysrq-trigger && echo sysrq"},
		{name: "read kernel secrets", shell: "cat /proc/kcore /proc/keys /proc/kmsg /proc/kallsyms /proc/timer_list 2>/dev/null | head -c 100; dmesg"},
		{name: "set the host name", shell: "hostname evil && echo set"},
		{name: "set the clock", shell: "date -s 2001-01-01 >/dev/null && echo set"},
		{name: "use kernel keys", python: "if call(250, 0, -3, 0) != 1 or call(248, 0, 0, 0, 0, 0) != 1 or call(249, 0, 0, 0, 0) != 1: won('keys')"},
		{name: "use io-uring", python: "if call(425, 1, 0) != 1 or call(426, 0, 0, 0, 0, 0, 0) != 1 or call(427, 0, 0, 0, 0) != 1: won('io_uring')"},
		{name: "load a program into the kernel", python: "if call(321, 0, 0, 0) != 1 or call(298, 0, 0, -1, -1, 0) != 1 or call(175, 0, 0, 0) != 1 or call(313, 0, 0, 0) != 1 or call(246, 0, 0, 0, 0) != 1: won('kernel')"},
		{name: "handle page faults", python: "if call(323, 0) != 1: won('userfaultfd')"},
		{name: "stop the machine", python: "if call(169, 0xfee1dead, 672274793, 0x4321fedc, 0) != 1 or call(168, 0) != 1 or call(167, 0, 0) != 1: won('reboot')"},
		{name: "move pages between memories", python: "if call(237, 0, 0, 0, 0, 0, 0) != 1 or call(279, 0, 0, 0, 0, 0, 0) != 1 or call(278, 0, 0, 0, 0) != 1: won('mempolicy')"},
		{name: "enter by the 32-bit door", python: "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))\nr = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\nif r != -38: won('int 0x80: %d' % r)"},
		{name: "unshare by the 32-bit door", python: "import mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes([0x53, 0xb8, 54, 1, 0, 0, 0xbb, 0, 0, 0, 0x10, 0xcd, 0x80, 0x5b, 0xc3]))\nr = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\nif r != -38: won('int 0x80: %d' % r)"},
		{name: "call by x32", python: "for nr in (39, 165, 272, 520, 521):\n    if call(0x40000000 + nr, 0x10000000) != 38: won('x32 %d' % nr)"},
		{name: "call what no kernel has yet", python: "for nr in (467, 471, 500, 1000, 0x3fffffff):\n    if call(nr, 0) not in (38, 1): won(nr)"},

		// Devices and terminals.
		{name: "make devices", shell: "mknod /tmp/d b 7 0 && echo made; mknod /dev/d c 1 1 && echo made; mknod /tmp/m c 1 5 && echo made"},
		{name: "open other devices", shell: "ls /dev | grep -E '^(sd|vd|nvme|mem|kmsg|fuse|kvm|net|loop|tty[0-9S])'"},
		{name: "type into a terminal", python: "import os, fcntl\nmaster, slave = os.openpty()\nfor request in (0x5412, 0x100005412, 0x541c):\n    if call(16, slave, request, ctypes.addressof(ctypes.c_char(b'x'))) != 1: won('%x' % request)"},

		// Sockets and networks.
		{name: "reach a port of the host", python: fmt.Sprintf("import socket\nreach(lambda: socket.create_connection(('127.0.0.1', %s), 1))", s.port)},
		{name: "reach an abstract socket of the host", python: fmt.Sprintf("import socket\nreach(lambda: socket.socket(socket.AF_UNIX).connect('\\0%s'))", s.abstract)},
		{name: "reach a socket file of the host", python: fmt.Sprintf("import socket\nreach(lambda: socket.socket(socket.AF_UNIX).connect(%q))", s.socket)},
		{name: "reach the host's daemons", shell: "ls /var/run/docker.sock /run/podman /run/containerd /run/dbus /run/systemd /run/user /tmp/.X11-unix /run/snapd.socket; env | grep -E '^(SSH_AUTH_SOCK|DISPLAY|DBUS_|XDG_RUNTIME_DIR|DOCKER_HOST|WAYLAND)'"},
		{name: "reach the network", python: "import socket\nfor a in (('1.1.1.1', 53), ('10.0.0.1', 80), ('192.168.0.1', 80), ('172.17.0.1', 80)): reach(lambda: socket.create_connection(a, 1))"},
		{name: "reach the network by IPv6", python: "import socket\nfor a in (('2606:4700:4700::1111', 53), ('fe80::1', 80), ('::ffff:1.1.1.1', 53)): reach(lambda: socket.create_connection(a, 1))"},
		{name: "reach the metadata address", python: "import socket\nfor a in (('169.254.169.254', 80), ('fd00:ec2::254', 80), ('169.254.170.2', 80), ('100.100.100.200', 80)): reach(lambda: socket.create_connection(a, 1))"},
		{name: "ask a resolver", python: "import socket\ndef ask():\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    s.sendto(b'x', ('8.8.8.8', 53))\nreach(ask)\nreach(lambda: socket.getaddrinfo('example.com', 80))"},
		{name: "see interfaces of the host", shell: "tail -n +3 /proc/net/dev | grep -v '^ *lo:'"},
		{name: "open raw sockets", python: "import socket\nfor family, kind, proto in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 3), (17, 2, 0), (38, 5, 0), (40, 1, 0)):\n    reach(lambda: socket.socket(family, kind, proto))"},
		{name: "change the network", shell: "ip link add x type dummy && echo link; ip addr add 10.9.9.9/24 dev lo && echo addr; ip route add default dev lo && echo route"},
		{name: "talk over System V memory of the host", shell: "ipcs -m | awk 'NR > 3 && NF'; ipcs -s | awk 'NR > 3 && NF'"},
	}
}

const pythonFrame = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) for a in args]) < 0 else 0
def won(what): print(what)
def reach(f):
    try: f()
    except OSError: return
    won('reached')
`

// Nothing on the red team's list succeeds, and the box is as well afterwards as before.
func TestRedTeam(t *testing.T) {
	t.Setenv("SECRET_OF_THE_OWNER", "swordfish-of-the-owner")
	s := surroundings{root: stateRoot(t), pid: os.Getpid(), parent: os.Getppid()}
	var err error
	if s.home, err = os.UserHomeDir(); err != nil {
		t.Skip("no home: ", err)
	}
	s.secret = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(s.secret, []byte("swordfish"), 0o666); err != nil {
		t.Fatal(err)
	}
	tcp := listening(t, "tcp", "127.0.0.1:0")
	_, s.port, _ = net.SplitHostPort(tcp.Addr().String())
	s.abstract = fmt.Sprintf("agentenv-red-%d", os.Getpid())
	listening(t, "unix", "@"+s.abstract)
	s.socket = filepath.Join(t.TempDir(), "s")
	listening(t, "unix", s.socket)
	_, box := create(t, openAt(t, s.root), sandbox.Spec{Tied: true})
	python := has(t, box, "python3")
	list := attempts(s)
	if len(list) < 40 {
		t.Errorf("%d attempts", len(list))
	}
	for _, a := range list {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			argv := []string{"sh", "-c", a.shell + "\necho tried"}
			if a.python != "" {
				if !python {
					t.Skip("no python3 to make the calls with")
				}
				argv = []string{"python3", "-c", pythonFrame + a.python + "\nprint('tried')"}
			}
			r, err := guest.Output(t.Context(), box, guest.Command{Argv: argv, Timeout: 20 * time.Second}, guest.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if out := r.Stdout.String(); out != "tried\n" || r.Exit.TimedOut {
				t.Errorf("commands can %s: %.300q, %+v\n%s", a.name, out, r.Exit, r.Stderr.String())
			}
		})
	}
	if got := sh(t, box, "echo still here"); got != "still here\n" {
		t.Errorf("the box after it all: %q", got)
	}
}

func listening(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// has tells whether the box has a program. Where everything must be there, it has to.
func has(t *testing.T, box guest.Box, program string) bool {
	t.Helper()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "command -v " + program}}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exit.OK() && os.Getenv("REQUIRE") != "" {
		t.Fatalf("the box has no %s", program)
	}
	return r.Exit.OK()
}
