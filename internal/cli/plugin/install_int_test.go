//go:build integration && linux

package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// need finds a program that the tests use.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatalf("%s is missing", name)
		}
		t.Skipf("needs %s", name)
	}
	return path
}

// offline are the variables of an installer that has no index.
func offline(wheels string) []string {
	return []string{"UV_NO_INDEX=1", "UV_OFFLINE=1", "UV_FIND_LINKS=" + wheels, "PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + wheels}
}

// TestInstall: what installing does with uv.
func TestInstall(t *testing.T) {
	need(t, "uv")
	scripts(t, "testdata/install", func(e *testscript.Env) error {
		for _, v := range append(offline(filepath.Join(e.WorkDir, "wheels")), "PYENV_ROOT="+os.Getenv("PYENV_ROOT"), "UV_CACHE_DIR="+filepath.Join(e.WorkDir, "cache")) {
			name, value, _ := strings.Cut(v, "=")
			e.Setenv(name, value)
		}
		return nil
	})
}

// world is a home with a folder of wheels, and agent-env as a process in it.
type world struct {
	t      *testing.T
	home   string
	wheels string
	path   string // PATH
}

func newWorld(t *testing.T, all ...wheeltest.Wheel) *world {
	t.Helper()
	return &world{t, t.TempDir(), wheeltest.Folder(t, all...), os.Getenv("PATH")}
}

// command is agent-env behind the words of wrap.
func (w *world) command(wrap []string, args ...string) *exec.Cmd {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	// testscript.Main plays the program for a process of that name.
	link := filepath.Join(w.home, "bin", "agent-env")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Symlink(exe, link); err != nil && !errors.Is(err, os.ErrExist) {
		w.t.Fatal(err)
	}
	argv := append(append(append([]string{}, wrap...), link), args...)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = w.home
	cmd.Env = append(os.Environ(), append(offline(w.wheels), "PATH="+w.path, "HOME="+w.home, "XDG_STATE_HOME="+filepath.Join(w.home, "state"), "UV_CACHE_DIR="+filepath.Join(w.home, "cache"))...)
	return cmd
}

// does runs a command line that must end with a code, and answers all that it says.
func (w *world) does(code int, args ...string) string {
	w.t.Helper()
	out, err := w.command(nil, args...).CombinedOutput()
	got := 0
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		got = ee.ExitCode()
	} else if err != nil {
		w.t.Fatal(err)
	}
	if got != code {
		w.t.Fatalf("%q ended with %d, want %d:\n%s", args, got, code, out)
	}
	return string(out)
}

func (w *world) state() string { return fingerprint(filepath.Join(w.home, "state")) }

// current is what is installed, by name and version; it must be whole: everything loads.
func (w *world) current() string {
	w.t.Helper()
	w.does(0, "plugin", "check")
	var out []string
	for line := range strings.Lines(w.does(0, "plugin", "list", "--no-load")) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[0], "agentenv-e2e-") {
			out = append(out, f[0]+" "+f[1])
		}
	}
	return strings.Join(out, ", ")
}

// TestInstallByPip: without uv, pip installs, and what it put there works.
func TestInstallByPip(t *testing.T) {
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Acme("1.3.0"), wheeltest.Broken(), wheeltest.NotPlugin(), wheeltest.Incompat())
	bin := t.TempDir() // a PATH without uv
	if err := os.Symlink(need(t, "python3"), filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	w.path = bin + ":/usr/bin:/bin"
	if _, err := os.Stat("/usr/bin/uv"); err == nil {
		t.Skip("uv is part of the system")
	}
	out := w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme<1.3")
	for _, want := range []string{"by pip, Python 3.", "Would install agentenv-e2e-acme-1.2.0", "  + agentenv-e2e-acme 1.2.0\n", "agentenv-e2e-acme: task_steps acme_check active"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "+ pip") {
		t.Errorf("pip itself is told of:\n%s", out)
	}
	before := w.state()
	w.does(1, "plugin", "add", "--yes", "agentenv-e2e-broken")
	w.does(1, "plugin", "add", "--yes", "not-plugin")
	if out := w.does(1, "plugin", "add", "--yes", "agentenv-e2e-incompat"); !strings.Contains(out, "the installer can't resolve this:") {
		t.Errorf("it says\n%s", out)
	}
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	if w.state() != before {
		t.Error("what failed, or changed nothing, changed the environment")
	}
	if out := w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme>=1.3"); !strings.Contains(out, "  ~ agentenv-e2e-acme 1.2.0 -> 1.3.0\n") {
		t.Errorf("it says\n%s", out)
	}
	if got := w.current(); got != "agentenv-e2e-acme 1.3.0" {
		t.Errorf("installed: %s", got)
	}
	w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-acme")
	if got := w.current(); got != "" {
		t.Errorf("installed: %s", got)
	}
}

// deaths are the calls at which a change is killed: all that make the swap, and those of everything before it, the installer's own included.
var deaths = map[string]struct {
	calls string
	paths []string // below the plugins' folder: only calls that touch these count; none is all
	every bool     // at every call; else at ever fewer, since what is synced and moved before the swap is all alike
}{
	"swap": {"fsync,fdatasync,syncfs,rename,renameat,renameat2,linkat,link,symlinkat,unlinkat,openat,flock,mkdirat", []string{".", "current.json", "generations", "generations/.tmp"}, true},
	// The folder itself is opened and synced once the swap is made. Calls are counted by thread, so that under load "swap" may never get that far.
	"swapped": {"openat,fsync", []string{"."}, true},
	"syncs":   {"fsync,fdatasync,syncfs", nil, false},
	"moves":   {"rename,renameat,renameat2", nil, false},
	"links":   {"linkat,link,symlinkat", nil, false},
}

// TestKilledAtEveryCall: an add that is killed, or whose installer is, leaves the old environment, byte for byte, or the new one, whole; the
// next command sweeps what it left.
func TestKilledAtEveryCall(t *testing.T) {
	strace := need(t, "strace")
	need(t, "uv")
	for name, d := range deaths {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
			w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
			before, old, fresh, installer, k := w.state(), 0, 0, 0, 1
			for {
				if k > 400 {
					t.Fatal("it never gets through")
				}
				wrap := []string{strace, "-qq", "-f", "-o", "/dev/null", "-e", "trace=" + d.calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", d.calls, k)}
				for _, p := range d.paths {
					wrap = append(wrap, "-P", filepath.Join(w.home, "state/agentenv/plugins", p))
				}
				cmd := w.command(wrap, "plugin", "add", "--yes", "agentenv-e2e-bundled")
				cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
				out, err := cmd.CombinedOutput()
				if err == nil {
					break
				}
				ee, ok := errors.AsType[*exec.ExitError](err)
				switch {
				case ok && ee.ExitCode() == 1: // it was the installer, or a Python, that was killed, and agent-env told so
					installer++
				case !ok || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL:
					t.Fatalf("call %d: %v: %s", k, err, out)
				}
				if current(t, w) == current0(before) {
					old++
					if lost := missing(w.state(), before); len(lost) > 0 {
						t.Fatalf("call %d: the old environment has changed: %q", k, lost)
					}
				} else {
					fresh++
					if got := w.current(); got != "agentenv-e2e-acme 1.2.0, agentenv-e2e-bundled 1.0.0" {
						t.Fatalf("call %d: installed: %s", k, got)
					}
					w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-bundled")
					before = w.state()
				}
				if k++; !d.every && os.Getenv("AGENTENV_SOAK") == "" {
					k += k / 2
				}
			}
			if got := w.current(); got != "agentenv-e2e-acme 1.2.0, agentenv-e2e-bundled 1.0.0" {
				t.Errorf("in the end: %s", got)
			}
			if left, _ := filepath.Glob(filepath.Join(w.home, "state/agentenv/plugins/generations/.tmp/*")); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
			if name == "swap" && old == 0 || name == "swapped" && (fresh == 0 || old > 0) {
				t.Errorf("%d times it was the old environment, %d times the new one", old, fresh)
			}
			t.Logf("killed until call %d: %d times the old environment (%d times the installer died), %d times the new one", k, old, installer, fresh)
		})
	}
}

// current0 is the current generation in a fingerprint, and current that of now.
func current0(state string) string {
	line, _, _ := strings.Cut(state, "\n")
	return line
}

func current(t *testing.T, w *world) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.home, "state/agentenv/plugins/current.json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// missing are the lines of before that now lacks: what is new may stand beside.
func missing(now, before string) []string {
	have := map[string]bool{}
	for line := range strings.Lines(now) {
		have[line] = true
	}
	var out []string
	for line := range strings.Lines(before) {
		if !have[line] {
			out = append(out, line)
		}
	}
	return out[:min(len(out), 5)]
}

// TestKilledAtRandom: agent-env is killed at random moments, and what it started dies with it.
func TestKilledAtRandom(t *testing.T) {
	need(t, "uv")
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	began := time.Now()
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-bundled")
	whole := time.Since(began)
	w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-bundled")
	before := w.state()
	n, old := 12, 0
	if os.Getenv("AGENTENV_SOAK") != "" {
		n = 60
	}
	for range n {
		cmd := w.command(nil, "plugin", "add", "--yes", "agentenv-e2e-bundled")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(whole * 11 / 10))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if current(t, w) == current0(before) {
			old++
			if len(missing(w.state(), before)) > 0 {
				t.Fatalf("the old environment has changed: %q", missing(w.state(), before))
			}
			continue
		}
		if got := w.current(); got != "agentenv-e2e-acme 1.2.0, agentenv-e2e-bundled 1.0.0" {
			t.Fatalf("installed: %s", got)
		}
		w.does(0, "plugin", "remove", "--yes", "agentenv-e2e-bundled")
		before = w.state()
	}
	t.Logf("%d kills: %d times the old environment, %d times the new one", n, old, n-old)
}

// TestInterrupted: SIGTERM and Ctrl-C while a slow plugin is loaded leave nothing behind.
func TestInterrupted(t *testing.T) {
	need(t, "uv")
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Slow(600))
			w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
			before := w.state()
			cmd := w.command(nil, "plugin", "add", "--yes", "agentenv-e2e-slow")
			said := &told{want: "+ agentenv-e2e-slow 1.0.0", seen: make(chan struct{})}
			cmd.Stdout, cmd.Stderr = said, said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			select { // it has been installed, and is being loaded
			case <-said.seen:
			case <-time.After(time.Minute):
				t.Fatalf("it says %s", said)
			}
			time.Sleep(300 * time.Millisecond)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if ee, ok := errors.AsType[*exec.ExitError](err); !ok || ee.ExitCode() != code {
				t.Fatalf("%v: %s", err, said)
			}
			if w.state() != before {
				t.Error("the environment has changed")
			}
			if left, _ := filepath.Glob(filepath.Join(w.home, "state/agentenv/plugins/generations/.tmp/*")); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
		})
	}
}

// TestOneAtATime: of changes that race one works and the others are refused; nothing is lost.
func TestOneAtATime(t *testing.T) {
	need(t, "uv")
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	cmds := make([]*exec.Cmd, 6)
	outs := make([]bytes.Buffer, len(cmds))
	for i := range cmds {
		cmds[i] = w.command(nil, "plugin", "add", "--yes", []string{"agentenv-e2e-acme", "agentenv-e2e-bundled"}[i%2])
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	worked := 0
	for i, cmd := range cmds {
		switch err := cmd.Wait(); {
		case err == nil:
			worked++
		case !strings.Contains(outs[i].String(), "Error: another agent-env changes the plugin environment just now"):
			t.Errorf("%v: %s", err, &outs[i])
		}
	}
	if worked == 0 {
		t.Error("none of them worked")
	}
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme", "agentenv-e2e-bundled")
	if got := w.current(); got != "agentenv-e2e-acme 1.2.0, agentenv-e2e-bundled 1.0.0" {
		t.Errorf("installed: %s", got)
	}
}

// told waits for words in what a process says.
type told struct {
	mu   sync.Mutex
	b    bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func (w *told) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if strings.Contains(w.b.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *told) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}
