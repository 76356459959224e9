package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper is a bundle whose one task has a sandbox and sleeps in it.
func sleeper(t *testing.T) (home string) {
	t.Helper()
	home = newHome(t)
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
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // what this process ignores, as under nohup, its children would
	defer signal.Stop(heard)
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
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

// TestSignalsInEachPhase: whenever a signal comes, the run takes down what it has made, itself, before it ends.
func TestSignalsInEachPhase(t *testing.T) {
	t.Parallel()
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		for _, at := range []string{"tasks/t.json: v1", "step 1/2 box (deploy_sandbox)", "step 1/2 box done"} {
			t.Run(sig.String()+"/"+at, func(t *testing.T) {
				t.Parallel()
				home := sleeper(t)
				seconds := fmt.Sprintf("sleep 100.%d", time.Now().UnixNano()) // so that its process can be told from all others
				task := filepath.Join(home, "b", "tasks", "t.json")
				if err := os.WriteFile(task, []byte(strings.ReplaceAll(read(t, task), "sleep 100", seconds)), 0o644); err != nil {
					t.Fatal(err)
				}
				r := start(t, home, "run", "./b")
				r.until(t, at)
				if err := r.cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if got := r.end(t, 20*time.Second); got != code {
					t.Errorf("exit code %d, want %d\n%s\n%s", got, code, strings.Join(r.out, "\n"), r.stderr.String())
				}
				folders, err := filepath.Glob(filepath.Join(home, "state", "agentenv", "boxes", "*"))
				if err != nil || len(folders) > 0 {
					t.Errorf("it leaves %v, %v", folders, err)
				}
				if left := marked(t, seconds); len(left) > 0 {
					t.Errorf("it leaves %v", left)
				}
			})
		}
	}
}

// TestSecondSignalStopsAtOnce: both signals come while the process is stopped, so that the second is there before the teardown can end.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	home := sleeper(t)
	r := start(t, home, "run", "./b")
	r.until(t, "step 2/2 long (verify_sandbox)")
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT} {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	// Two that wait together may be seen in either order, by the threads of the program.
	if got := r.end(t, 20*time.Second); got != 130 && got != 143 {
		t.Errorf("exit code %d, want 130 or 143", got)
	}
	stderr := r.stderr.String()
	if !strings.Contains(stderr, "Still up, until this process has ended") || !strings.Contains(stderr, "sandbox box of @local/") {
		t.Errorf("it doesn't tell what is left:\n%s", stderr)
	}
	// The sandbox was tied to the process: it is dead now, and the next command sweeps what it left.
	swept(t, home)
}

// TestQuitStopsAtOnce: Ctrl-\ is for those who won't wait, and no time for a word about this program's inside.
func TestQuitStopsAtOnce(t *testing.T) {
	t.Parallel()
	home := sleeper(t)
	r := start(t, home, "run", "./b")
	r.until(t, "step 2/2 long (verify_sandbox)")
	if err := r.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t, 20*time.Second); got != 131 {
		t.Errorf("exit code %d, want 131", got)
	}
	if got := r.stderr.String(); strings.Contains(got, "goroutine") || !strings.Contains(got, "Still up, until this process has ended") {
		t.Errorf("stderr: %s", got)
	}
	swept(t, home)
}

// TestHangupUnderNohup: who asked for hangups to be ignored has them ignored.
func TestHangupUnderNohup(t *testing.T) {
	home := sleeper(t)
	signal.Ignore(syscall.SIGHUP) // a child starts with what its parent ignores
	r := start(t, home, "run", "./b")
	signal.Reset(syscall.SIGHUP)
	r.until(t, "step 2/2 long (verify_sandbox)")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := r.end(t, 20*time.Second); got != 143 {
		t.Errorf("exit code %d, want 143\n%s", got, r.stderr.String())
	}
}

// swept waits, five seconds at most, until a command finds no sandbox.
func swept(t *testing.T, home string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		next := start(t, home, "sandbox", "list", "--json")
		next.end(t, 10*time.Second)
		out := strings.Join(next.out, "\n")
		if strings.Contains(out, `"sandboxes":[]`) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("five seconds later there is still\n%s\n%s", out, next.stderr.String())
		}
	}
}

// TestKeep: the sandboxes of a kept run stay up until a signal, which is how the command is meant to end.
func TestKeep(t *testing.T) {
	t.Parallel()
	home := sleeper(t)
	quick := strings.ReplaceAll(read(t, filepath.Join(home, "b", "tasks", "t.json")), "sleep 100", "true")
	if err := os.WriteFile(filepath.Join(home, "b", "tasks", "t.json"), []byte(quick), 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, home, "run", "./b", "--keep")
	r.until(t, "Kept up:")
	r.until(t, "agent-env sandbox exec")
	list := start(t, home, "sandbox", "list", "--json")
	list.end(t, 10*time.Second)
	if out := strings.Join(list.out, "\n"); !strings.Contains(out, `"name":"box"`) || !strings.Contains(out, `"state":"running"`) {
		t.Errorf("while it holds, sandbox list tells\n%s", out)
	}
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := r.end(t, 20*time.Second); got != 0 {
		t.Errorf("exit code %d, want 0\n%s", got, r.stderr.String())
	}
	if out := strings.Join(r.out, "\n"); !strings.HasSuffix(out, "\nTore down 1 sandbox.") {
		t.Errorf("it ends with\n%s", out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
