package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

func TestNamespaceHints(t *testing.T) {
	settings := map[string]string{
		"/proc/sys/user/max_user_namespaces": "0", "/proc/sys/user/max_net_namespaces": "0", "/proc/sys/user/max_pid_namespaces": "100",
		"/proc/sys/kernel/unprivileged_userns_clone": "0", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
	}
	got := strings.Join(namespaceHints(func(name string) string { return settings[name] }), "\n")
	want := []string{"user.max_user_namespaces is 0", "user.max_net_namespaces is 0"}
	if os.Geteuid() != 0 {
		want = append(want, "kernel.unprivileged_userns_clone is 0", "kernel.apparmor_restrict_unprivileged_userns is 1")
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q lacks %q", got, w)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != len(want) {
		t.Errorf("%d hints, want %d: %s", n, len(want), got)
	}
	if hints := namespaceHints(func(string) string { return "" }); len(hints) != 0 {
		t.Errorf("without settings: %v", hints)
	}
	for _, e := range []error{syscall.EPERM, syscall.ENOSPC, syscall.EUSERS} {
		err := namespaceError(e)
		if !errors.Is(err, sandbox.ErrUnsupported) || !errors.Is(err, e) || !strings.Contains(err.Error(), "docker") {
			t.Errorf("%v: %v", e, err)
		}
	}
	if err := namespaceError(syscall.ENOMEM); errors.Is(err, sandbox.ErrUnsupported) || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("out of memory: %v", err)
	}
}

func TestKernelFinding(t *testing.T) {
	for release, want := range map[string]bool{
		"6.18.44-fc-v669": true, "5.12.0": true, "5.12": true, "5.11.22": false, "4.18.0-553.el8_10.x86_64": false, "10.0": true, "6.1-rc3": true, "of unknown version": false,
	} {
		if f := kernelFinding(release); f.OK != want || !f.OK && f.Fix == "" {
			t.Errorf("%s: %+v, want %v", release, f, want)
		}
	}
}

func TestHostName(t *testing.T) {
	for name, want := range map[string]string{
		"": "b1", "web": "web", "My Box": "my-box", "---": "b1", "ümlaut": "mlaut", strings.Repeat("x", 100): strings.Repeat("x", 63), "a.b_c": "a-b-c", "-a-": "a",
	} {
		if got := hostside.HostName(name, "b1"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []string // parts of the error; none: it is right
	}{
		{Options{StateRoot: "/s"}, nil},
		{Options{StateRoot: "/s", Tools: []string{"/root/.pyenv"}, Expose: []string{"/opt/x"}}, nil},
		{Options{}, []string{"state root"}},
		{
			Options{StateRoot: "/home/u/state", Tools: []string{"/", "rel", "/a/../b"}, Expose: []string{"/home/u", "/home/u/state/boxes"}},
			[]string{"sandbox path / would show", `"rel"`, `"/a/../b"`, "/home/u would show", "/home/u/state/boxes would show"},
		},
	} {
		_, err := New(c.o)
		if len(c.want) == 0 {
			if err != nil {
				t.Errorf("%+v: %v", c.o, err)
			}
			continue
		}
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v lacks %q", c.o, err, w)
			}
		}
	}
}

func TestSpecCheck(t *testing.T) {
	s := sandbox.Spec{}
	if err := check(&s); err != nil || s.Isolation != sandbox.LevelNamespaces || s.Lease != sandbox.DefaultLease || s.Pids != DefaultPids || s.DiskMB != DefaultDiskMB {
		t.Errorf("the least spec became %+v, %v", s, err)
	}
	bad := sandbox.Spec{Image: "De bian", Network: "open", Isolation: sandbox.LevelContainer, CPU: -1, Env: []string{"OK=1", "none", "=x"}}
	err := check(&bad)
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"De bian", `"open"`, "container", "not -1", `"none"`, `"=x"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}

func TestRefuseBelow(t *testing.T) {
	weak := sandbox.Isolation{Level: sandbox.LevelNone, Probes: []sandbox.Probe{{Name: "mounts", Detail: "file systems can be mounted"}, {Name: "user_ids", OK: true}}}
	err := refuseBelow(sandbox.LevelNamespaces, weak)
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "mounts: file systems can be mounted") || strings.Contains(err.Error(), "user_ids") {
		t.Errorf("%v", err)
	}
	if err := refuseBelow(sandbox.LevelNone, weak); err != nil {
		t.Errorf("asked for nothing: %v", err)
	}
	if err := refuseBelow(sandbox.LevelNamespaces, sandbox.Isolation{Level: sandbox.LevelNamespaces}); err != nil {
		t.Errorf("all held: %v", err)
	}
}

// The stamps of files hold until one of them changes, is removed or appears.
func TestStamps(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a b"), filepath.Join(dir, "b")
	if err := os.WriteFile(a, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := stamp([]string{dir, a, b, "with\nnewline"})
	if !s.hold() || s.key("x") == s.key("y") || stamps("").hold() {
		t.Fatalf("%q", s)
	}
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"written", func() error { return os.WriteFile(a, []byte("22"), 0o600) }},
		{"mode", func() error { return os.Chmod(a, 0o644) }},
		{"touched", func() error { return os.Chtimes(a, time.Now(), time.Now().Add(time.Second)) }},
		{"appeared", func() error { return os.WriteFile(b, nil, 0o600) }},
		{"removed", func() error { return os.Remove(b) }},
	} {
		before := stamp([]string{dir, a})
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if before.hold() {
			t.Errorf("after %s the stamps still hold", c.what)
		}
	}
}

// The copy of /etc has what everybody may read, and nothing else.
func TestCopyEtc(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("what root alone can read takes root to make")
	}
	from, to := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"passwd": 0o644, "shadow": 0o640, "private/key": 0o600, "ssl/cert": 0o444, "closed/open": 0o644, "hosts": 0o644, "run": 0o755, "writable": 0o666, "setuid": 0o755 | os.ModeSetuid,
	} {
		full := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(full, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(from, "closed"), 0o700), os.Symlink("/usr/x", filepath.Join(from, "link")), syscall.Mkfifo(filepath.Join(from, "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := copyEtc(from, to); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(to, func(name string, d os.DirEntry, err error) error {
		if err != nil || name == to {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprintf("%s %v", strings.TrimPrefix(name, to+"/"), info.Mode()))
		return nil
	})
	want := []string{
		"link Lrwxrwxrwx", "passwd -rw-r--r--", "private drwxr-xr-x", "run -rwxr-xr-x", "setuid -rwxr-xr-x", "ssl drwxr-xr-x", "ssl/cert -r--r--r--", "writable -rw-r--r--",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v\nwant %q", got, err, want)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("00000000000000000001\n{\"id\":\"x\",\"state\":\"starting\"}\n"))
	f.Add([]byte("00000000000000000001\n{\"id\":\"x\""))
	f.Add([]byte("short"))
	f.Add(make([]byte, 9<<10))
	f.Fuzz(func(t *testing.T, data []byte) {
		boxes := t.TempDir()
		if err := os.WriteFile(filepath.Join(boxes, "b1"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openSlot(boxes, "b1")
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if r := s.read(); r.ID != "b1" || r.Provider != Name || r.State != sandbox.StateDead {
			t.Errorf("a file that nobody holds is %+v", r.Info)
		}
	})
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{"b1": true, "b-1": true, "": false, ".": false, "..": false, "a/b": false, "A": false, "b1.sock": false, strings.Repeat("a", 65): false} {
		if hostside.ValidID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}

// A child that is being started has copies of all open files for a moment: a slot that was let go of isn't taken for it.
func TestSlotIsFreeBesideACopy(t *testing.T) {
	t.Parallel()
	boxes := t.TempDir()
	s, err := makeSlot(boxes, "b012345678")
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(s.fd())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(child) }()
	other, err := openSlot(boxes, "b012345678")
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if !other.taken() {
		t.Error("a slot that is held is not taken")
	}
	s.close()
	if other.taken() {
		t.Error("a slot that was let go of is taken")
	}
}
