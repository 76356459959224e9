package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// What a command writes is the box's alone, and it may write everywhere that programs do.
func TestWritesStayInside(t *testing.T) {
	p := open(t)
	_, box := create(t, p, sandbox.Spec{Tied: true})
	name := fmt.Sprintf("agentenv-red-%d", os.Getpid())
	places := []string{"/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib", "/usr/share", "/etc", "/opt", "/var/lib", "/var/tmp", "/tmp", "/root", "/home", "/srv", "/mnt", "/run", "/"}
	sh(t, box, fmt.Sprintf("for d in %s; do echo x > $d/%s && mkdir -p $d/%s.d || exit 1; done", strings.Join(places, " "), name, name))
	for _, dir := range places {
		for _, suffix := range []string{"", ".d"} {
			if _, err := os.Lstat(filepath.Join(dir, name+suffix)); err == nil {
				t.Errorf("%s of the box is on the host", filepath.Join(dir, name+suffix))
			}
		}
	}
	// Create, replace and remove in the folders of programs.
	sh(t, box, `set -e
		printf '#!/bin/sh\necho mine\n' > /usr/local/bin/tool; chmod +x /usr/local/bin/tool; [ "$(tool)" = mine ]
		printf '#!/bin/sh\necho replaced\n' > /tmp/true; chmod +x /tmp/true; mv /tmp/true /usr/bin/true; [ "$(/usr/bin/true)" = replaced ]
		rm /usr/bin/true; ! /usr/bin/true 2>/dev/null; ! [ -e /usr/bin/true ]
		echo changed > /etc/issue; [ "$(cat /etc/issue)" = changed ]; rm -f /etc/passwd; ! [ -e /etc/passwd ]`)
	if _, err := os.Stat("/usr/bin/true"); err != nil {
		t.Fatalf("the host lost a program: %v", err)
	}
	// A second box knows nothing of it.
	_, other := create(t, p, sandbox.Spec{Tied: true})
	if got := sh(t, other, fmt.Sprintf("ls -d /*/%s /usr/*/%s 2>/dev/null; /usr/bin/true; head -c 4 /etc/passwd", name, name)); got != "root" {
		t.Errorf("another box sees %q", got)
	}
}

// Ids of a box are unprivileged ones outside, whoever owns it.
func TestIDsOutside(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	info, box := create(t, p, sandbox.Spec{Tied: true})
	if got := sh(t, box, "id -u; id -g"); got != "0\n0\n" {
		t.Errorf("inside: %q", got)
	}
	sh(t, box, "sleep 60 >/dev/null 2>&1 &")
	pids := inside(t, pid1Of(t, root, info.ID))
	if len(pids) < 2 {
		t.Fatalf("processes of the box: %v", pids)
	}
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 5 || f[0] != "Uid:" && f[0] != "Gid:" {
				continue
			}
			for _, id := range f[1:5] {
				var n int
				fmt.Sscan(id, &n)
				if os.Geteuid() == 0 && n < 100000 || n == 0 {
					t.Errorf("process %d of the box has outside %s", pid, strings.TrimSpace(line))
				}
			}
		}
	}
	if os.Geteuid() == 0 {
		// All ids of the box are usable in it.
		sh(t, box, "touch /tmp/f && chown 33:42 /tmp/f && [ \"$(stat -c %u:%g /tmp/f)\" = 33:42 ]")
	}
}

// No set-user-id program gives what its caller lacks.
func TestNoSetuidGain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root a box has one id")
	}
	_, box := create(t, open(t), sandbox.Spec{Tied: true})
	got := sh(t, box, "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && setpriv --reuid 1000 --regid 1000 --clear-groups /tmp/id -u")
	if got != "1000\n" {
		t.Errorf("a set-user-id program runs as %q", got)
	}
}

// The system calls behind the refusals, past the programs that might refuse by themselves.
func TestSystemCallsRefused(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the numbers are of amd64")
	}
	_, box := create(t, open(t), sandbox.Spec{Tied: true})
	script := `
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) for a in args])
    return ctypes.get_errno() if r < 0 else 0
for name, nr, args, want in [
    ("ptrace", 101, (0x4206, 1, 0, 0), 1), ("unshare user", 272, (0x10000000,), 1), ("unshare uts", 272, (0x04000000,), 1), ("setns", 308, (0, 0), 1),
    ("clone user", 56, (0x10000000 | 17, 0, 0, 0, 0), 1), ("clone3", 435, (0, 0), 38), ("bpf", 321, (0, 0, 0), 1), ("keyctl", 250, (0, 0), 1),
    ("io_uring", 425, (1, 0), 1), ("userfaultfd", 323, (0,), 1), ("perf", 298, (0, 0, 0, 0, 0), 1), ("open_by_handle_at", 304, (0, 0, 0), 1),
    ("mount", 165, (0, 0, 0, 0, 0), 1), ("fsopen", 430, (0, 0), 1), ("pivot_root", 155, (0, 0), 1), ("chroot", 161, (0,), 1), ("init_module", 175, (0, 0, 0), 1),
    ("TIOCSTI", 16, (0, 0x5412, 0), 1), ("TIOCSTI in the low half", 16, (0, 0x1_0000_5412, 0), 1), ("AF_ALG", 41, (38, 5, 0), 1), ("AF_PACKET", 41, (17, 3, 0), 1),
    ("personality", 135, (0x0200000,), 1), ("x32 getpid", 0x40000000 + 39, (), 38), ("pidfd_getfd", 438, (0, 0, 0), 1), ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0), 1),
]:
    got = call(nr, *args)
    if got != want: print(name, "gives", got, "want", want)
# The 32-bit door: int 0x80 with getpid (20) must be unknown, not a way around the filter.
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
r = f()
if r != -38: print("int 0x80 gives", r)
# What programs need still works.
import socket, threading, subprocess
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
t = threading.Thread(target=lambda: None); t.start(); t.join()
assert subprocess.run(["true"]).returncode == 0
print("done")
`
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"python3", "-c", script}}, guest.Limits{})
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no python3 to make the calls with")
	}
	if err != nil || r.Stdout.String() != "done\n" {
		t.Errorf("%v, %+v\n%s%s", err, r.Exit, r.Stdout.String(), r.Stderr.String())
	}
}

// A fork bomb is held by the box's limit and dies with its command; the box lives on.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p := openAt(t, root)
	info, box := create(t, p, sandbox.Spec{Tied: true, Pids: 60, Lease: 30 * time.Second})
	var most int
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Those that two looks in a row find were there at once: one look finds some that have come for others that went meanwhile.
		for before := []int(nil); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			now := inside(t, pid1Of(t, root, info.ID))
			both := slices.DeleteFunc(slices.Clone(now), func(pid int) bool { return !slices.Contains(before, pid) })
			before, most = now, max(most, len(both))
		}
	}()
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"python3", "-c", "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass"}, Timeout: time.Second,
	}, guest.Limits{})
	cancel()
	<-done
	if err != nil || !r.Exit.TimedOut {
		t.Errorf("the bomb: %+v, %v", r.Exit, err)
	}
	if most < 30 || most > 70 {
		t.Errorf("at most %d processes were seen, the limit is 60", most)
	}
	if got := sh(t, box, "ls -d /proc/[0-9]* | wc -l"); strings.TrimSpace(got) > "5" {
		t.Errorf("%s processes are left", strings.TrimSpace(got))
	}
	if how := info.Isolation.Limits["pids"]; how != "cgroup" && how != "rlimit" {
		t.Errorf("pids are limited by %q", how)
	}
}

// A disk is as large as was asked.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	info, box := create(t, open(t), sandbox.Spec{Tied: true, DiskMB: 16})
	got := sh(t, box, "dd if=/dev/zero of=/tmp/big bs=1M count=64 2>&1 | grep -o 'No space left'; s=$(stat -c %s /tmp/big); [ $s -gt 8000000 ] && [ $s -le 16777216 ]; rm /tmp/big; echo ok > /usr/lib/x && cat /usr/lib/x")
	if got != "No space left\nok\n" {
		t.Errorf("a full disk: %q", got)
	}
	if info.Isolation.Limits["disk"] != "tmpfs 16 MB" {
		t.Errorf("disk: %q", info.Isolation.Limits["disk"])
	}
}

// A command that takes more memory than the box has is killed, its caller is told, and the box lives on.
func TestMemoryLimit(t *testing.T) {
	info, box := create(t, open(t), sandbox.Spec{Tied: true, MemoryMB: 96})
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"python3", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}, Timeout: 20 * time.Second,
	}, guest.Limits{})
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no python3 to take memory with")
	}
	if err != nil || r.Exit.OK() || r.Exit.TimedOut {
		t.Errorf("%+v, %v: %s", r.Exit, err, r.Stderr.String())
	}
	switch how := info.Isolation.Limits["memory"]; how {
	case "cgroup":
		if !r.Exit.OOM || r.Exit.Signal != 9 {
			t.Errorf("killed for memory: %+v", r.Exit)
		}
	case "watchdog": // a limit of its own data stops a single process first
	default:
		t.Errorf("memory is limited by %q", how)
	}
	if got := sh(t, box, "echo fine"); got != "fine\n" {
		t.Errorf("the box afterwards: %q", got)
	}
}

// A box whose memory is full by what is on its disk is still there for who frees it: the kernel kills commands, and not PID 1.
func TestFullMemoryLeavesPID1(t *testing.T) {
	memory := int64(40) // MB
	if raced {          // the detector's own memory is several times what PID 1 takes without it
		memory *= 10
	}
	fill := fmt.Sprintf("head -c %dm /dev/zero >/tmp/full", memory*5/2)
	for range 2 { // which thread is whose is the scheduler's
		info, box := create(t, open(t), sandbox.Spec{Tied: true, MemoryMB: memory})
		if info.Isolation.Limits["memory"] != "cgroup" {
			t.Skip("memory is limited by ", info.Isolation.Limits["memory"])
		}
		for i := range 5 { // the disk is memory, which stays when the one that filled it is killed
			r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", fill}}, guest.Limits{})
			if err != nil && !strings.HasSuffix(err.Error(), "cannot allocate memory") {
				t.Fatalf("attempt %d: %v", i, err)
			}
			if i == 0 && !r.Exit.OOM {
				t.Errorf("%s where %d MB are allowed: %+v", fill, memory, r.Exit)
			}
		}
		empty := guest.PutFile{Path: "full", Mode: 0o644, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }}
		if err := guest.Put(t.Context(), box, "/tmp", []guest.PutFile{empty}); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, box, "echo alive"); got != "alive\n" {
			t.Errorf("the box after it: %q", got)
		}
	}
}

// Where no control group holds the box, its processes together are watched.
func TestMemoryWatchdog(t *testing.T) {
	info, box := create(t, open(t), sandbox.Spec{Tied: true, MemoryMB: 120})
	if info.Isolation.Limits["memory"] != "watchdog" {
		t.Skip("memory is limited by ", info.Isolation.Limits["memory"])
	}
	one := "python3 -c \"x = bytearray(60 << 20); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(3)\""
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"sh", "-c", one + " & " + one + " & " + one + " & wait"}, Timeout: 15 * time.Second, KillTree: true,
	}, guest.Limits{})
	if err != nil || !r.Exit.OOM {
		t.Errorf("three times 60 MB where 120 are allowed: %+v, %v: %s", r.Exit, err, r.Stderr.String())
	}
}

// Memory that no process shows as its own is found too: shared memory that was written and dropped from the page tables, and System V
// segments that nobody has mapped. Memory that a descriptor alone holds can't be made.
func TestMemoryWatchdogFindsSharedMemory(t *testing.T) {
	info, box := create(t, open(t), sandbox.Spec{Tied: true, MemoryMB: 64})
	if info.Isolation.Limits["memory"] != "watchdog" {
		t.Skip("memory is limited by ", info.Isolation.Limits["memory"])
	}
	if !has(t, box, "python3") {
		t.Skip("no python3 to make the calls with")
	}
	for name, script := range map[string]string{
		"dropped": "import mmap\nm = mmap.mmap(-1, 160 << 20)\nfor at in range(0, 160 << 20, 1 << 20):\n    m[at:at + (1 << 20)] = b'x' * (1 << 20)\n    m.madvise(mmap.MADV_DONTNEED, at, 1 << 20)\n" +
			"import time\ntime.sleep(10)",
		"unmapped": "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nids = []\nfor _ in range(10):\n    ids.append(libc.shmget(0, 16 << 20, 0o1600))\n" +
			"    p = ctypes.c_void_p(libc.shmat(ids[-1], None, 0))\n    ctypes.memset(p, 1, 16 << 20)\n    libc.shmdt(p)\n" +
			"for _ in range(100):\n    time.sleep(0.1)\n    if sum(int(l.split()[14]) for l in list(open('/proc/sysvipc/shm'))[1:]) <= 64 << 20:\n        time.sleep(3)\n        break\nelse: print('kept')",
		"in a descriptor": "import os, time\ntry: fd = os.memfd_create('x')\nexcept OSError: raise SystemExit\nfor _ in range(160): os.write(fd, b'x' * (1 << 20))\ntime.sleep(3)\nprint('kept')",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"python3", "-c", script}, Timeout: 20 * time.Second}, guest.Limits{})
			if err != nil || r.Exit.TimedOut || r.Stdout.String()+r.Stderr.String() != "" || name != "in a descriptor" && !r.Exit.OOM {
				t.Errorf("160 MB where 64 are allowed: %+v, %v: %s%s", r.Exit, err, r.Stdout.String(), r.Stderr.String())
			}
		})
	}
}

// A box with half a core gets half a core.
func TestCPULimit(t *testing.T) {
	info, box := create(t, open(t), sandbox.Spec{Tied: true, CPU: 0.2})
	if info.Isolation.Limits["cpu"] == "none" {
		t.Skip("nothing limits cpu here")
	}
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "while :; do :; done"}, Timeout: time.Second}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit.CPU > 450*time.Millisecond {
		t.Errorf("%s of cpu in a second, a fifth is allowed", r.Exit.CPU)
	}
}

// What the owner had open when it was started is nobody's inside: a descriptor of a folder would lead out of the box.
func TestOwnersDescriptorsStayOutside(t *testing.T) {
	var dirs []*os.File // many, since the first numbers are used for others on the way
	for range 8 {
		dir, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		dirs = append(dirs, dir)
	}
	root := stateRoot(t)
	o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Tied: true}}}, dirs...)
	box, err := openAt(t, root).Connect(t.Context(), o.ids(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if got := sh(t, box, "for f in /proc/self/fd/*; do [ -d $f/ ] && echo ${f##*/}; done; true"); got != "" {
		t.Errorf("a command has folders open: %q", got)
	}
}

// What many scripts do, whoever has the box.
func TestStreamsByName(t *testing.T) {
	_, box := create(t, open(t), sandbox.Spec{Tied: true})
	c := guest.Command{Argv: []string{"sh", "-c", "cat /dev/stdin > /dev/stdout; echo err > /dev/stderr"}}
	r, err := guest.Output(t.Context(), box, c, guest.Limits{Stdin: []byte("in\n")})
	if err != nil {
		t.Fatal(err)
	}
	if out, errs := r.Stdout.String(), r.Stderr.String(); out != "in\n" || errs != "err\n" || !r.Exit.OK() {
		t.Errorf("stdout %q, stderr %q, %+v", out, errs, r.Exit)
	}
}

// What PID 1 has open is not to be had by asking it for a path, whatever a command names it.
func TestNothingOfPID1ByPath(t *testing.T) {
	_, box := create(t, open(t), sandbox.Spec{Tied: true})
	sh(t, box, "for n in $(seq 0 40); do ln -s /proc/self/fd/$n /tmp/fd$n; done; ln -s /proc/1/exe /tmp/exe; ln -s /proc/self/cwd /tmp/cwd; echo plain > /tmp/f; ln -s f /tmp/link")
	var paths []string
	for n := range 41 {
		paths = append(paths, fmt.Sprintf("/tmp/fd%d", n), fmt.Sprintf("/proc/1/fd/%d", n))
	}
	for _, path := range append(paths, "/tmp/exe", "/proc/self/exe", "/proc/self/environ", "/proc/1/maps", "/proc/thread-self/mountinfo") {
		if b, err := box.ReadFile(t.Context(), path, 64<<20); err == nil {
			t.Errorf("%s: %d bytes of PID 1's", path, len(b))
		}
	}
	for _, path := range append(paths, "/tmp/cwd", "/tmp/exe") {
		if err := guest.Put(t.Context(), box, path, []guest.PutFile{guest.PutBytes("x", 0o644, []byte("x"))}); err == nil {
			t.Errorf("%s: a file was written", path)
		}
	}
	if b, err := box.ReadFile(t.Context(), "/tmp/link", 100); err != nil || string(b) != "plain\n" {
		t.Errorf("an ordinary link: %q, %v", b, err)
	}
}
