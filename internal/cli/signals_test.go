package cli_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper is a bundle whose one task has a sandbox and sleeps in it.
func sleeper(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	task := `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "long", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/tmp", "verifier_id": "long", "criteria": [
    {"type": "bash_cmd_succeeds", "criterion": "sleeps", "bash_cmd": "sleep 100"}]}
]`
	if err := os.MkdirAll(filepath.Join(home, "b", "tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "b", "tasks", "t.json"), []byte(task), 0o644); err != nil {
		t.Fatal(err)
	}
	return home
}

// running is an agent-env that has started its long step.
type running struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr *strings.Builder
	out    []string
}

func start(t *testing.T, home string, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.CommandContext(t.Context(), "agent-env", args...), stderr: &strings.Builder{}}
	r.cmd.Dir = home
	r.cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	r.cmd.Stderr = r.stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.lines = bufio.NewScanner(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// until reads lines up to one that holds text.
func (r *running) until(t *testing.T, text string) {
	t.Helper()
	for r.lines.Scan() {
		r.out = append(r.out, r.lines.Text())
		if strings.Contains(r.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("it ended without %q:\n%s\n%s", text, strings.Join(r.out, "\n"), r.stderr.String())
}

// end reads the rest and answers the exit code.
func (r *running) end(t *testing.T, limit time.Duration) int {
	t.Helper()
	timer := time.AfterFunc(limit, func() { _ = r.cmd.Process.Kill() })
	defer timer.Stop()
	for r.lines.Scan() {
		r.out = append(r.out, r.lines.Text())
	}
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

func TestFirstSignalTearsDown(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			r := start(t, sleeper(t), "run", "./b")
			r.until(t, "step 2/2 long (verify_sandbox)")
			if err := r.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if got := r.end(t, 20*time.Second); got != code {
				t.Errorf("exit code %d, want %d\n%s\n%s", got, code, strings.Join(r.out, "\n"), r.stderr.String())
			}
			out := strings.Join(r.out, "\n")
			for _, want := range []string{"Tasks:", "tasks/t.json v1: cancelled", "Tore down 1 sandbox."} {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %q:\n%s", want, out)
				}
			}
			if got := r.stderr.String(); got != "Cancelling: taking down 1 sandbox (Ctrl-C again to stop now)\n" {
				t.Errorf("stderr: %s", got)
			}
		})
	}
}
