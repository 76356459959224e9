package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
)

// The test program plays other processes that make boxes. What one is to do is a JSON role in its environment; it tells the boxes' ids on
// stdout, a line each, and then waits to be killed, or ends when told by Leave.
const roleVar = "AGENTENV_TEST_ROLE"

type role struct {
	StateRoot string
	Specs     []sandbox.Spec
	Leave     bool     // end after making the boxes
	Forever   bool     // make and destroy boxes until killed
	Use       []string // ids of boxes of others to use
}

func play(text string) int {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fail(err)
	}
	p, err := local.New(local.Options{StateRoot: r.StateRoot})
	if err != nil {
		return fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		for _, s := range r.Specs {
			info, err := p.Create(ctx, s)
			if err != nil {
				return fail(err)
			}
			fmt.Println(info.ID)
			if r.Forever {
				if err := p.Destroy(ctx, info.ID); err != nil {
					return fail(err)
				}
			}
		}
		if !r.Forever {
			break
		}
	}
	if err := use(ctx, p, r.Use); err != nil {
		return fail(err)
	}
	if !r.Leave {
		<-ctx.Done()
	}
	if err := p.Close(); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// owner is a process that plays a role.
type owner struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// open are more files that it is started with, beside its standard streams.
func startOwner(t *testing.T, r role, open ...*os.File) *owner {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+string(b))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, open
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &owner{cmd, bufio.NewScanner(out)}
	t.Cleanup(func() { o.kill() })
	return o
}

// ids reads the next n ids.
func (o *owner) ids(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for len(ids) < n && o.out.Scan() {
		ids = append(ids, o.out.Text())
	}
	if len(ids) < n {
		t.Fatalf("the owner made %d boxes of %d: %v", len(ids), n, o.cmd.Wait())
	}
	return ids
}

func (o *owner) signal(s os.Signal) { o.cmd.Process.Signal(s) }

func (o *owner) kill() {
	o.signal(syscall.SIGKILL)
	o.cmd.Wait()
}

// pid1Of is the pid of a box's PID 1; 0 when it is dead.
func pid1Of(t testing.TB, root, id string) int {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(root, "boxes", id), os.O_RDWR, 0)
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

// hang bounds what is to come at once but may take a while on a busy machine; nothing else would end within it.
const hang = 45 * time.Second

// within waits for ok, at most for d.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	for ; !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > d {
			t.Fatalf("after %s still not: %s", d, what)
		}
	}
	t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
}

// alive counts those of the processes that live; a zombie doesn't.
func alive(pids []int) int {
	n := 0
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if _, rest, ok := strings.Cut(string(b), ") "); ok && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X") {
			n++
		}
	}
	return n
}

// inside are the pids, as seen from here, of all processes in the pid namespace of a PID 1.
func inside(t *testing.T, pid int) []int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return []int{pid} // a box of another user
	}
	var pids []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if got, err := os.Readlink(d + "/ns/pid"); err == nil && got == ns {
			var n int
			fmt.Sscan(filepath.Base(d), &n)
			pids = append(pids, n)
		}
	}
	return pids
}

func create(t testing.TB, p sandbox.Provider, s sandbox.Spec) (sandbox.Info, guest.Box) {
	t.Helper()
	info, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		box.Close()
		if err := p.Destroy(context.WithoutCancel(t.Context()), info.ID); err != nil {
			t.Error(err)
		}
	})
	return info, box
}

// sh runs a script and answers its stdout; it must succeed.
func sh(t testing.TB, box guest.Box, script string) string {
	t.Helper()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", script}}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exit.OK() {
		t.Fatalf("%s: %+v %s%s", script, r.Exit, r.Stdout.String(), r.Stderr.String())
	}
	return r.Stdout.String()
}

const daemons = "for i in 1 2 3; do setsid sleep 900 >/dev/null 2>&1 & done; (setsid sh -c 'trap \"\" TERM INT HUP; sleep 900' >/dev/null 2>&1 &) ; true"

// An owner that is killed takes its tied boxes with it, at once and whole; a sweep takes what is left on the disk.
func TestKilledOwnerTakesItsBoxes(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	mounts := hostMounts(t)
	o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Tied: true}, {Tied: true, Pids: 50}, {Tied: true}}})
	ids := o.ids(t, 3)
	var pids []int
	for _, id := range ids {
		box, err := p.Connect(t.Context(), id) // from another process than its owner
		if err != nil {
			t.Fatal(err)
		}
		sh(t, box, daemons)
		box.Close()
		pids = append(pids, inside(t, pid1Of(t, root, id))...)
	}
	if len(pids) < 3 {
		t.Fatalf("processes of the boxes: %v", pids)
	}
	o.kill()
	within(t, hang, "all processes gone", func() bool {
		return alive(pids) == 0 && !slices.ContainsFunc(ids, func(id string) bool { return pid1Of(t, root, id) != 0 })
	})
	infos, err := p.List(t.Context())
	if err != nil || len(infos) != 3 || infos[0].State != sandbox.StateDead {
		t.Errorf("list: %+v, %v", infos, err)
	}
	swept, err := p.Sweep(t.Context())
	slices.Sort(ids)
	if err != nil || !slices.Equal(swept, ids) {
		t.Errorf("swept %v, %v; want %v", swept, err, ids)
	}
	nothingLeft(t, root, ids)
	if now := hostMounts(t); now != mounts {
		t.Errorf("the host's mounts went from %d to %d", mounts, now)
	}
}

func hostMounts(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) { // others may mount meanwhile, but nothing like this
		if strings.Contains(line, "lowerdir=") && strings.Contains(line, "/sys/") || strings.Contains(line, " sandbox rw") {
			n++
		}
	}
	return n
}

// nothingLeft looks for files and control groups of boxes.
func nothingLeft(t *testing.T, root string, ids []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "boxes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left: %s", e.Name())
	}
	for _, id := range ids {
		err := filepath.WalkDir("/sys/fs/cgroup", func(name string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == id {
				t.Errorf("left: %s", name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Leased boxes outlive the process that made them, and other processes find them.
func TestLeasedBoxOutlivesItsMaker(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p := openAt(t, root)
	for _, end := range []string{"leaves", "is killed"} {
		o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Name: "kept", Key: end}}, Leave: end == "leaves"})
		id := o.ids(t, 1)[0]
		if end == "leaves" {
			if err := o.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
		} else {
			o.kill()
		}
		info, box := create(t, p, sandbox.Spec{Name: "another", Key: end})
		if info.ID != id || info.Name != "kept" || info.Tied {
			t.Errorf("its maker %s: the key gives %+v, want %s", end, info, id)
		}
		if got := sh(t, box, "echo here"); got != "here\n" {
			t.Errorf("its maker %s: %q", end, got)
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
		if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
			t.Errorf("its maker %s: after destroy: %v, %v", end, infos, err)
		}
		nothingLeft(t, root, []string{id})
	}
}

// A stopped owner can't keep a box beyond its lease.
func TestStoppedOwner(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p := openAt(t, root)
	o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Tied: true, Lease: 700 * time.Millisecond}, {Lease: 700 * time.Millisecond}}})
	ids := o.ids(t, 2)
	o.signal(syscall.SIGSTOP)
	var pids []int
	for _, id := range ids {
		pids = append(pids, inside(t, pid1Of(t, root, id))...)
	}
	within(t, hang, "all processes gone", func() bool {
		return alive(pids) == 0 && pid1Of(t, root, ids[0]) == 0 && pid1Of(t, root, ids[1]) == 0
	})
	if swept, err := p.Sweep(t.Context()); err != nil || len(swept) != 2 {
		t.Errorf("swept %v, %v", swept, err)
	}
	nothingLeft(t, root, ids)
	o.signal(syscall.SIGCONT)
}

// Whenever a maker is killed, five seconds later nothing of its boxes runs, and a sweep leaves nothing on the disk.
func TestMakerKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p := openAt(t, root)
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		o := startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Tied: true}, {}, {Tied: true, Pids: 20}}, Forever: true})
		o.ids(t, 1+i%3)
		time.Sleep(time.Duration(i*1700) * time.Microsecond)
		o.kill()
		within(t, 5*time.Second, "nothing runs", func() bool {
			infos, err := p.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(infos, func(i sandbox.Info) bool { return i.Tied && i.State != sandbox.StateDead })
		})
		infos, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, info := range infos { // a leased one may have been finished just before
			ids = append(ids, info.ID)
			if err := p.Destroy(t.Context(), info.ID); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, root, ids)
	}
}

// The launcher may be killed too: tied boxes end with it, leased ones live on, and the next box is made by another.
func TestKilledLauncher(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	tied, _ := create(t, p, sandbox.Spec{Tied: true})
	leased, box := create(t, p, sandbox.Spec{})
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid1Of(t, root, tied.ID)))
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	_, rest, _ := strings.Cut(string(b), ") ")
	if parent, err = strconv.Atoi(strings.Fields(rest)[1]); err != nil {
		t.Fatal(err)
	}
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent)); err != nil || !strings.Contains(string(cmdline), guest.LauncherArgv0) {
		t.Fatalf("the parent of a box is %d, %q, %v", parent, cmdline, err)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, hang, "the tied box is gone", func() bool { return pid1Of(t, root, tied.ID) == 0 })
	if got := sh(t, box, "echo here"); got != "here\n" {
		t.Errorf("the leased box %s: %q", leased.ID, got)
	}
	_, next := create(t, p, sandbox.Spec{Tied: true})
	if got := sh(t, next, "echo next"); got != "next\n" {
		t.Errorf("the next box: %q", got)
	}
}

// One key is one box, whoever asks.
func TestOneKeyAcrossProcesses(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	var owners []*owner
	for range 4 {
		owners = append(owners, startOwner(t, role{StateRoot: root, Specs: []sandbox.Spec{{Key: "shared"}, {Key: "shared"}}, Leave: true}))
	}
	var ids []string
	for _, o := range owners {
		ids = append(ids, o.ids(t, 2)...)
		if err := o.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 {
		t.Errorf("one key gave the boxes %v", ids)
	}
	for _, id := range ids {
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, root, ids)
}

// A box that is asked for where boxes can't be made, such as in a box, is refused with the setting that forbids it.
func TestNestedIsRefusedWithTheReason(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(self); err != nil || info.Mode()&0o005 != 0o005 {
		t.Skip("others can't execute this test program")
	}
	p, err := local.New(local.Options{StateRoot: stateRoot(t), Tools: []string{self}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, box := create(t, p, sandbox.Spec{Tied: true})
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{self}, Env: []string{roleVar + `={"StateRoot":"/tmp/state","Specs":[{}]}`}, Timeout: time.Minute,
	}, guest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"refuses to make namespaces", "user.max_user_namespaces is 0", "docker"} {
		if !strings.Contains(r.Stderr.String(), want) || r.Exit.Code != 1 {
			t.Errorf("%q lacks %q, %+v", r.Stderr.String(), want, r.Exit)
		}
	}
}

// As an ordinary user on a host with mounts below /usr, in a mount namespace made for the test.
func TestMountsBelowUsrAsAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount with")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-ec",
		"mount -t tmpfs none /usr/games; chmod 755 /usr/games; echo mark > /usr/games/mark; exec setpriv --reuid=54321 --regid=54321 --clear-groups /proc/$0/exe -test.run '^TestMountsBelowUsr$' -test.v",
		strconv.Itoa(os.Getpid()))
	home := userHome(t)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "AGENTENV_TEST_MOUNTED=1"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMountsBelowUsr") {
		t.Errorf("%v\n%s", err, out)
	}
}

// userHome is a folder of the unprivileged user of tests.
func userHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(os.TempDir(), fmt.Sprintf("agentenv-test-%d", testUser))
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, testUser, testUser); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("/proc/self/exe"); err != nil || info.Mode()&0o001 == 0 {
		t.Skipf("other users can't execute the test program: %v", err)
	}
	return home
}

// testUser is a user without privileges, whom the system need not know.
const testUser = 54321

// As root the whole of this package's tests runs once more as a user without privileges.
func TestAsAnUnprivilegedUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this is the unprivileged run")
	}
	home := userHome(t)
	args := []string{"-test.run=.", "-test.timeout=300s"}
	if testing.Short() || os.Getenv("AGENTENV_SOAK") == "" { // what is repeated many times was repeated by root
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUser, Gid: testUser}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", testUser, err, out)
	}
}
