//go:build integration && linux

package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// TestRecordsThatLeadOut: a package whose RECORD names files outside of its environment is refused, and what it names stays, also when it is kept and removed.
func TestRecordsThatLeadOut(t *testing.T) {
	need(t, "uv")
	evil := wheeltest.Acme("6.6.6")
	w := newWorld(t)
	victim := filepath.Join(w.home, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	evil.Record = []string{victim}
	for n := 3; n < 14; n++ {
		evil.Record = append(evil.Record, strings.Repeat("../", n)+"victim")
	}
	w.wheels = wheeltest.Folder(t, evil, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	safe := func(when string) {
		t.Helper()
		if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
			t.Fatalf("%s: the file outside is gone: %v", when, err)
		}
	}
	// uv writes a RECORD of its own, of the files that the wheel has.
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme==6.6.6")
	w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-acme")
	safe("uv")
	// pip keeps the lines, and uv would follow them when it uninstalls: such a package is refused whatever is kept.
	bin := t.TempDir()
	if err := os.Symlink(need(t, "python3"), filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	w.path = bin + ":/usr/bin:/bin"
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-bundled")
	before := w.state()
	for _, also := range []string{"--keep=false", "--keep"} {
		out := w.does(1, "plugin", "add", "--yes", also, "agentenv-e2e-acme==6.6.6")
		if !strings.Contains(out, "Error: agentenv-e2e-acme 6.6.6 can't be installed: its RECORD names '") {
			t.Errorf("it says\n%s", out)
		}
		safe("pip " + also)
	}
	if w.state() != before {
		t.Error("the environment has changed")
	}
}

// TestStoppedInstaller: an installer that is stopped (SIGSTOP) hinders nobody who reads plugins, and goes when the command is ended.
func TestStoppedInstaller(t *testing.T) {
	uv := need(t, "uv")
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	before := w.state()
	bin := t.TempDir() // a uv that stops itself where it would install
	pid := filepath.Join(bin, "pid")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *--dry-run*|*--no-index*) exec '%s' \"$@\";; esac\necho $$ >'%s'\nkill -STOP $$\nexec '%s' \"$@\"\n", uv, pid, uv)
	if err := os.WriteFile(filepath.Join(bin, "uv"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := w.path
	w.path = bin + ":" + path
	cmd := w.command(nil, "plugin", "add", "--yes", "agentenv-e2e-bundled")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if b, err := os.ReadFile(pid); err == nil && len(b) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is installed")
		}
	}
	if got := w.current(); got != "agentenv-e2e-acme 1.2.0" {
		t.Errorf("meanwhile there is %s", got)
	}
	if out := w.does(1, "plugin", "remove", "--yes", "agentenv-e2e-acme"); !strings.Contains(out, "another agent-env changes the plugin environment just now") {
		t.Errorf("it says\n%s", out)
	}
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if took := time.Since(began); took > 20*time.Second || cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("it ends after %v with %d", took, cmd.ProcessState.ExitCode())
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || syscall.Kill(n, 0) == nil {
		t.Errorf("the installer %s is still there", b)
	}
	w.path = path
	if w.state() != before {
		t.Error("the environment has changed")
	}
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-bundled")
}

// TestChangesUnderRuns: plugins come and go while bundles run that use another one.
func TestChangesUnderRuns(t *testing.T) {
	need(t, "uv")
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	if err := os.MkdirAll(filepath.Join(w.home, "b", "tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.home, "b", "tasks", "t.json"), []byte(`[{"id": "check", "type": "acme_check"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	var runs atomic.Int64
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				out, err := w.command(nil, "run", "./b").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "passed (check: 1)") {
					t.Errorf("%v\n%s", err, out)
					return
				}
				runs.Add(1)
			}
		})
	}
	for range 3 {
		w.does(0, "plugin", "add", "--yes", "agentenv-e2e-bundled")
		w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-bundled")
	}
	close(done)
	wg.Wait()
	t.Logf("%d runs while plugins were changed six times", runs.Load())
	if runs.Load() < 2 {
		t.Error("nothing ran meanwhile")
	}
	trees, err := filepath.Glob(filepath.Join(w.home, "state/agentenv/plugins/generations/*/tree"))
	if err != nil || len(trees) > 2 {
		t.Errorf("generations stay: %q, %v", trees, err)
	}
}

// TestNoRoomAndNoWriting: a full disk and a state root that can't be written refuse an install, and what is installed works on.
func TestNoRoomAndNoWriting(t *testing.T) {
	need(t, "uv")
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	in := func(script string, args ...string) (string, int) {
		cmd := w.command([]string{"unshare", "-m", "sh", "-c", script + ` && "$@"`, "sh"}, args...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	readOnly := "mount --bind state state && mount -o remount,ro,bind state"
	if out, code := in(readOnly, "plugin", "list"); code != 0 || !strings.Contains(out, "agentenv-e2e-acme") {
		t.Errorf("plugin list of what is read-only ends with %d:\n%s", code, out)
	}
	if out, code := in(readOnly, "plugin", "add", "--yes", "agentenv-e2e-bundled"); code != 1 || !strings.Contains(out, "read-only file system") {
		t.Errorf("plugin add to what is read-only ends with %d:\n%s", code, out)
	}
	full := "mkdir -p small && mount -t tmpfs -o size=300k none small && export XDG_STATE_HOME=$PWD/small/state"
	out, code := in(full, "plugin", "add", "--yes", "agentenv-e2e-bundled")
	if code != 1 || !strings.Contains(strings.ToLower(out), "no space left") || strings.Contains(out, "goroutine") {
		t.Errorf("plugin add to a full disk ends with %d:\n%s", code, out)
	}
	if got := w.current(); got != "agentenv-e2e-acme 1.2.0" {
		t.Errorf("installed: %s", got)
	}
}
