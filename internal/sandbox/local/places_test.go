package local_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
)

// The state root may be anywhere and called anything.
func TestOddStateRoots(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"with space: ümlaut,", "with space", "ümlaut 日本", "colon:comma,back\\slash", "quote'\"$(x)", strings.Repeat("long/", 60) + "end", "new\nline"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if i > 0 { // the first one builds its own trees
			if err := sandboxtest.ShareTrees(dir); err != nil {
				t.Fatal(err)
			}
		}
		p := openAt(t, dir)
		info, box := create(t, p, sandbox.Spec{Tied: true})
		if got := sh(t, box, "cat /etc/hostname && touch /usr/lib/x"); got != info.ID+"\n" {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// One entry that is no box's never spoils the list.
func TestCorruptEntries(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	good, _ := create(t, p, sandbox.Spec{Tied: true, Name: "good"})
	boxes := filepath.Join(root, "boxes")
	for name, text := range map[string]string{"garbage": "\x00\xffgarbage", "empty": "", "half": "00000000000000000001\n{\"id\":", "NOT-AN-ID": "x", "other.sock": ""} {
		if err := os.WriteFile(filepath.Join(boxes, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(boxes, "folder"), 0o700), os.Symlink("/etc/passwd", filepath.Join(boxes, "link"))); err != nil {
		t.Fatal(err)
	}
	infos, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, i := range infos {
		states[i.ID] = i.State
	}
	if states[good.ID] != sandbox.StateRunning || states["garbage"] != sandbox.StateDead || states["empty"] != sandbox.StateDead || states["half"] != sandbox.StateDead || len(states) != 4 {
		t.Errorf("list: %v", states)
	}
	if err := p.Destroy(t.Context(), "half"); err != nil {
		t.Errorf("destroy of a damaged entry: %v", err)
	}
	swept, err := p.Sweep(t.Context())
	if err != nil || !slices.Equal(swept, []string{"empty", "garbage"}) {
		t.Errorf("swept %v, %v", swept, err)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal(err)
	}
}

// A box that is being made can be destroyed; its maker is told.
func TestDestroyWhileStarting(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	p, other := openAt(t, root), openAt(t, root)
	warm(t, p)
	for range 20 {
		done := make(chan error, 1)
		var info sandbox.Info
		go func() {
			var err error
			info, err = p.Create(t.Context(), sandbox.Spec{})
			done <- err
		}()
		var id string
		for id == "" {
			infos, err := other.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(infos) > 0 {
				id = infos[0].ID
			}
		}
		if err := other.Destroy(t.Context(), id); err != nil {
			t.Fatalf("destroy: %v", err)
		}
		if err := <-done; err == nil {
			if err := p.Destroy(t.Context(), info.ID); err != nil {
				t.Error(err)
			}
		}
		nothingLeft(t, root, []string{id})
	}
}

// Tool chains and exposed folders are seen read-only at their own places, and nothing beside them.
func TestToolsAndExpose(t *testing.T) {
	host := t.TempDir()
	for dir := host; dir != "/"; dir = filepath.Dir(dir) { // as tool chains are: everybody may read them
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o005 != 0o005 {
			if err := os.Chmod(dir, info.Mode()|0o055); err != nil {
				t.Skip(err)
			}
		}
	}
	for name, text := range map[string]string{"tool/bin/hi": "#!/bin/sh\necho hi\n", "data/f": "data", "hidden/f": "hidden", "single": "one file"} {
		full := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := local.New(local.Options{StateRoot: stateRoot(t), Tools: []string{host + "/tool", host + "/single"}, Expose: []string{host + "/data"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, box := create(t, p, sandbox.Spec{Tied: true})
	script := fmt.Sprintf("cd %s; tool/bin/hi; cat data/f single; ls; for f in tool/x data/f single tool/bin/hi; do echo no >> $f; done 2>/dev/null; rm -rf tool data single 2>/dev/null; ls", host)
	if got := sh(t, box, script); got != "hi\ndataone filedata\nsingle\ntool\ndata\nsingle\ntool\n" {
		t.Errorf("%q", got)
	}
	if b, err := os.ReadFile(filepath.Join(host, "data/f")); err != nil || string(b) != "data" {
		t.Errorf("the host's file is %q, %v", b, err)
	}
	q, err := local.New(local.Options{StateRoot: stateRoot(t), Tools: []string{"/no/such/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Create(t.Context(), sandbox.Spec{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/tool") {
		t.Errorf("a tool that isn't there: %v", err)
	}
}

func TestExamine(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	r := p.Examine(t.Context())
	if !r.OK || r.Isolation.Level != sandbox.LevelNamespaces || len(r.Isolation.Probes) < 10 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"kernel", "namespaces", "guest program", "memory limit", "pids limit", "cpu limit", "user ids", "start", "isolation"} {
		i := slices.IndexFunc(r.Findings, func(f local.Finding) bool { return f.Name == name })
		if i < 0 || r.Findings[i].Detail == "" || !r.Findings[i].OK && r.Findings[i].Fix == "" {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
	if err := p.Check(t.Context(), sandbox.Spec{}); err != nil {
		t.Errorf("check: %v", err)
	}
	nothingLeft(t, root, nil)
}

// Many starts leave descriptors, mounts, processes and files as they were.
func TestNothingAddsUp(t *testing.T) {
	root := stateRoot(t)
	p := openAt(t, root)
	warm(t, p)
	starts := manyStarts
	if testing.Short() {
		starts /= 3
	}
	count := func() (fds, mounts, procs int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		children, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range children {
			b, _ := os.ReadFile(name)
			procs += len(strings.Fields(string(b)))
		}
		return len(entries), hostMounts(t), procs
	}
	fds, mounts, procs := count()
	for i := range starts {
		info, err := p.Create(t.Context(), sandbox.Spec{Tied: i%2 == 0, Pids: 100, MemoryMB: 256})
		if err != nil {
			t.Fatal(err)
		}
		box, err := p.Connect(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"true"}}, guest.Limits{}); err != nil {
			t.Fatal(err)
		}
		box.Close()
		if err := p.Destroy(context.WithoutCancel(t.Context()), info.ID); err != nil {
			t.Fatal(err)
		}
	}
	within(t, hang, "all is as before", func() bool {
		f, m, n := count()
		return f <= fds+2 && m == mounts && n == procs
	})
	nothingLeft(t, root, nil)
}

// A program that may be executed but not read doesn't escape its command's limit by that.
func TestTimeoutKillsWhatCanNotBeRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("what a box can't read is another user's on the host, which takes root to make")
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("/usr/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sleep"), b, 0o711); err != nil {
		t.Fatal(err)
	}
	root := stateRoot(t)
	p, err := local.New(local.Options{StateRoot: root, Tools: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, box := create(t, p, sandbox.Spec{Tied: true})
	r, err := guest.Output(t.Context(), box, guest.Command{
		Argv: []string{"sh", "-c", "setsid " + dir + "/sleep 600 & setsid " + dir + "/sleep 600 & sleep 600"}, Timeout: 300 * time.Millisecond,
	}, guest.Limits{})
	if err != nil || !r.Exit.TimedOut {
		t.Errorf("%+v, %v, %s", r.Exit, err, r.Stderr.String())
	}
	if left := inside(t, pid1Of(t, root, info.ID)); len(left) != 1 {
		t.Errorf("%d processes are left", len(left)-1)
	}
}

// A box is shown the program itself and what its maker names, read-only, and no other box is.
func TestShown(t *testing.T) {
	host := t.TempDir()
	for dir := host; dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o005 != 0o005 {
			if err := os.Chmod(dir, info.Mode()|0o055); err != nil {
				t.Skip(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(host, "f"), []byte("shown"), 0o644); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if self, err := os.Executable(); err != nil {
		t.Fatal(err)
	} else if _, err := os.Stat(self); errors.Is(err, os.ErrPermission) {
		t.Skip("this user can't reach the test program by its path")
	}
	p := open(t)
	info, box := create(t, p, sandbox.Spec{Tied: true, Self: true, Shown: []sandbox.Shown{{From: host, At: "/opt/seen", Hold: lock}}})
	lock.Close()
	self := strings.Fields(sh(t, box, "sha256sum "+sandbox.SelfPath))[0]
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(exe)); self != want {
		t.Errorf("the program is %s, want %s", self, want)
	}
	if got := sh(t, box, "cat /opt/seen/f; (echo no > /opt/seen/f; rm -f /opt/seen/f; echo no > "+sandbox.SelfPath+") 2>/dev/null; cat /opt/seen/f"); got != "shownshown" {
		t.Errorf("%q", got)
	}
	again, err := os.Open(lock.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the box doesn't hold the lock: %v", err)
	}
	_, bare := create(t, p, sandbox.Spec{Tied: true})
	if got := sh(t, bare, "ls -d "+sandbox.SelfPath+" /opt/seen 2>/dev/null || true"); got != "" {
		t.Errorf("another box sees %s", got)
	}
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock outlives the box: %v", err)
	}
	for _, bad := range []sandbox.Shown{{From: "rel", At: "/x"}, {From: host, At: "/a/../b"}, {From: host, At: "/"}, {From: "/no/such", At: "/x"}} {
		if _, err := p.Create(t.Context(), sandbox.Spec{Tied: true, Shown: []sandbox.Shown{bad}}); err == nil {
			t.Errorf("%+v is shown", bad)
		}
	}
}
