//go:build integration && linux

package plugin_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// TestAnotherPython: when python3 is another one, every package is installed again for it, in its version.
func TestAnotherPython(t *testing.T) {
	need(t, "uv")
	const system = "/usr/bin/python3"
	first, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(getattr(sys, '_base_executable', None) or sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(first), "/usr/bin/") || exec.CommandContext(t.Context(), system, "--version").Run() != nil {
		t.Skip("this machine has one python3")
	}
	w := newWorld(t, wheeltest.Acme("1.2.0"), wheeltest.Bundled())
	w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme")
	other := t.TempDir()
	if err := os.Symlink(system, filepath.Join(other, "python3")); err != nil {
		t.Fatal(err)
	}
	w.path = other + ":" + w.path
	before := w.state()
	if out := w.does(0, "plugin", "add", "--yes", "agentenv-e2e-acme"); !strings.Contains(out, "Python is another one now: every package is installed again") {
		t.Errorf("it says\n%s", out)
	}
	if got := w.current(); got != "agentenv-e2e-acme 1.2.0" {
		t.Errorf("installed: %s", got)
	}
	out := w.does(0, "plugin", "add", "--yes", "agentenv-e2e-bundled")
	if got := w.current(); got != "agentenv-e2e-acme 1.2.0, agentenv-e2e-bundled 1.0.0" {
		t.Errorf("installed: %s, having said\n%s", got, out)
	}
	if w.state() == before {
		t.Error("nothing was made for the other Python")
	}
	// What is installed is gone from every index: nothing changes.
	if err := os.RemoveAll(w.wheels); err != nil {
		t.Fatal(err)
	}
	w.path = strings.TrimPrefix(w.path, other+":")
	before = w.state()
	if out := w.does(1, "plugin", "remove", "--yes", "agentenv-e2e-bundled"); !strings.Contains(out, "can't be installed again for the Python that is here now") {
		t.Errorf("it says\n%s", out)
	}
	if w.state() != before {
		t.Error("the environment has changed")
	}
}

// TestProceed: the question of plugin add itself, at a terminal.
func TestProceed(t *testing.T) {
	need(t, "uv")
	for name, c := range map[string]struct {
		reply     string
		code      int
		says      string
		installed string
	}{
		"yes":    {"y\n", 0, "Added.", "agentenv-e2e-acme 1.2.0"},
		"no":     {"n\n", 1, "Proceed? [y/N]", ""},
		"Enter":  {"\n", 1, "Proceed? [y/N]", ""},
		"Ctrl-C": {"\x03", 1, "Aborted!", ""},
		"Ctrl-D": {"\x04", 1, "Aborted!", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, wheeltest.Acme("1.2.0"))
			cmd := w.command(nil, "plugin", "add", "agentenv-e2e-acme")
			code, out := onTerminal(t, cmd, "[y/N]", c.reply)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("ends with %d, says\n%s", code, out)
			}
			if got := w.current(); got != c.installed {
				t.Errorf("installed: %s", got)
			}
			if left, _ := filepath.Glob(filepath.Join(w.home, "state/agentenv/plugins/generations/.tmp/*")); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
		})
	}
}

// onTerminal runs a command at a pty, types the reply when it has asked, and answers its exit code and words.
func onTerminal(t *testing.T, cmd *exec.Cmd, question, reply string) (int, string) {
	t.Helper()
	ours, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	var out bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf, asked := make([]byte, 4096), false
		for {
			n, err := ours.Read(buf)
			out.Write(buf[:n])
			if !asked && strings.Contains(out.String(), question) {
				asked = true
				time.Sleep(50 * time.Millisecond)
				_, _ = ours.WriteString(reply)
			}
			if err != nil {
				return
			}
		}
	}()
	err = cmd.Wait()
	<-read
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, out.String()
}
