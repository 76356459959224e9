package cli_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// onTerminal runs agent-env with a terminal for all its streams and answers what the terminal got.
func onTerminal(t *testing.T, home string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "agent-env", args...)
	cmd.Dir = home
	cmd.Env = append(append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "TERM=xterm", "NO_COLOR=", "CLICOLOR_FORCE="), env...)
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, _ := io.ReadAll(f) // a terminal whose other side is gone answers EIO
	if err := cmd.Wait(); err != nil {
		t.Fatalf("agent-env %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// TestTerminal: on a terminal bars replace the lines of steps; what is no terminal, or a dumb one, gets lines.
func TestTerminal(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	live := onTerminal(t, home, nil, "run", "hello")
	if strings.Contains(live, "step 1/3") || !strings.Contains(live, "Tasks:\n") || !strings.Contains(live, "\x1b[32mpassed\x1b[0m (hello: 1)") {
		t.Errorf("on a terminal it prints\n%q", live)
	}
	if plain := onTerminal(t, home, []string{"NO_COLOR=1"}, "run", "hello"); strings.Contains(plain, "\x1b[3") {
		t.Errorf("with NO_COLOR it prints\n%q", plain)
	}
	if dumb := onTerminal(t, home, []string{"TERM=dumb"}, "run", "hello"); !strings.Contains(dumb, "step 1/3 box (deploy_sandbox)") || strings.Contains(dumb, "\x1b") {
		t.Errorf("on a dumb terminal it prints\n%q", dumb)
	}
	for line := range strings.Lines(onTerminal(t, home, nil, "run", "--help")) {
		if len(line) > 101 {
			t.Errorf("help is wider than the terminal: %q", line)
		}
	}
	if exec := onTerminal(t, home, nil, "sandbox", "check"); !strings.Contains(exec, "\x1b[32mholds\x1b[0m") {
		t.Errorf("sandbox check prints\n%q", exec)
	}
}

// TestWorkOnTerminal: what a deployment waits for has a bar with how long it has taken and the last that it wrote.
func TestWorkOnTerminal(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	layOut(t, home, []shown{
		{"slow/envs/echo/Dockerfile", "FROM scratch\n"},
		{"slow/envs/echo/env.toml", "environment_name = 'echo'\n"},
		{"slow/envs/echo/process.toml", "command = ['agent-env', 'serve', 'echo-mcp']\nbuild = ['sh', '-c', 'echo first; echo at https://me:hunter2@index.example; sleep 1.8']\n"},
		{"slow/tasks/t.json", `[{"id": "up", "type": "deploy_env", "env_id": "echo"}]`},
	})
	for _, args := range [][]string{{"run", "./slow"}, {"env", "deploy", "@local/hand/echo", "--ttl", "1m"}} {
		if args[0] == "env" {
			if err := os.WriteFile(filepath.Join(home, "slow/envs/echo/more"), nil, 0o644); err != nil { // to be built anew
				t.Fatal(err)
			}
			onTerminal(t, home, nil, "env", "put", "@local/hand/echo", "slow/envs/echo")
		}
		got := onTerminal(t, home, nil, args...)
		if !strings.Contains(got, "build for 'echo': at https://***@index.example") || !strings.Contains(got, " 1s") || strings.Contains(got, "hunter2") || strings.Contains(got, " …\n") {
			t.Errorf("agent-env %s prints\n%q", strings.Join(args, " "), got)
		}
	}
	onTerminal(t, home, nil, "env", "stop", "@local/hand/echo")
}

// TestTypedInput: what is typed reaches a command in a sandbox although no terminal does, whenever it is typed, and what the command prints faster than a
// terminal shows it is whole.
func TestTypedInput(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	onTerminal(t, home, nil, "sandbox", "start", "--name", "try", "--lease", "5m")
	const script = "echo ready; read line; echo got $line; test -t 0 || echo no terminal; seq 100000; echo all"
	cmd := exec.CommandContext(t.Context(), "agent-env", "sandbox", "exec", "try", "--", "sh", "-c", script)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var shown strings.Builder
	b := make([]byte, 4096)
	for typed := false; ; {
		n, err := f.Read(b)
		shown.Write(b[:n])
		if !typed && strings.Contains(shown.String(), "ready") {
			typed = true
			time.Sleep(20 * time.Millisecond) // the command waits by now, as it does for a person
			if _, err := f.WriteString("hello\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // a terminal whose other side is gone answers EIO
		}
	}
	err = cmd.Wait()
	out := strings.ReplaceAll(shown.String(), "\r\n", "\n")
	head, _, _ := strings.Cut(out, "\n1\n")
	if err != nil || head != "ready\nhello\ngot hello\nno terminal" {
		t.Errorf("%v\n%s", err, head)
	}
	if n := strings.Count(out, "\n"); n != 4+100000+1 || !strings.HasSuffix(out, "\n100000\nall\n") {
		t.Errorf("%d lines, the last ones\n%s", n, out[max(0, len(out)-200):])
	}
	onTerminal(t, home, nil, "sandbox", "rm", "try")
}

// TestLiveRuns: runs that last show what is under way: the steps, how many have ended, the sandboxes; steps that run again are not counted twice, and nothing of
// it stays.
func TestLiveRuns(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const slow = `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "nap", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "sleep 5"}]}
]`
	write("b/tasks/one.json", slow)
	write("b/tasks/two.json", slow)
	out := onTerminal(t, home, []string{"NO_COLOR=1"}, "run", "./b")
	for _, want := range []string{"2 runs under way, 2 sandboxes", "[tasks/one.json] nap (verify_sandbox)", "1/2", "0/2", "[tasks/two.json] passed in "} {
		if !strings.Contains(out, want) {
			t.Errorf("a terminal never shows %q", want)
		}
	}
	if strings.Contains(out, "step 1/2") || strings.Contains(out, "\x1b[3m") || strings.Contains(out, "\x1b[32m") || strings.Contains(out, "\x1b[1m") {
		t.Errorf("lines of steps, or colours:\n%q", out)
	}
	if _, after, _ := strings.Cut(out, "Tasks:\n"); strings.Contains(after, "under way") {
		t.Error("bars stay after the end")
	}
	write("b/tasks/one.json", strings.Replace(slow, `"criteria"`, `"depends_on": ["box"], "criteria"`, 1))
	single := onTerminal(t, home, []string{"NO_COLOR=1"}, "run", "./b", "--task", "one")
	if !strings.Contains(single, "[tasks/one.json] nap (verify_sandbox), 1 sandbox") {
		t.Errorf("a single run shows\n%q", single)
	}
}

// TestPersonAtTerminal: a person at the terminal of a run is asked what an agent says whom they play, and the bars leave the screen meanwhile.
func TestPersonAtTerminal(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for name, text := range map[string]string{
		"tasks/review.json": `[
  {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
  {"id": "wait", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "wait", "criteria": [{"type": "bash_cmd_succeeds", "criterion": "waits", "bash_cmd": "sleep 1.2"}]},
  {"id": "who", "type": "deploy_human_agent", "agent_name": "reviewer"},
  {"id": "ask", "type": "prompt_agent", "agent_name": "reviewer", "prompt": "Is it good?\nReally?", "prompt_id": "q"},
  {"id": "said", "type": "agent_prompt_response_verifier", "prompt_id": "q", "verifier_id": "said", "criteria": [{"type": "response_contains", "criterion": "says", "needles": ["good enough"]}]}
]`,
	} {
		at := filepath.Join(home, "desk", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "agent-env", "run", "./desk")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "TERM=xterm")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out strings.Builder
	b := make([]byte, 4096)
	typed := 0
	for {
		n, err := f.Read(b)
		out.Write(b[:n])
		if n := strings.Count(out.String(), "reviewer> "); n > typed {
			typed = n
			time.Sleep(300 * time.Millisecond) // bars would be drawn by now
			text := "\n"
			if typed == 2 {
				text = "It is good enough.\n"
			}
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // a terminal whose other side is gone answers EIO
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := strings.ReplaceAll(out.String(), "\r\n", "\n")
	_, after, ok := strings.Cut(text, "ask: reviewer is asked:\n  Is it good?\n  Really?\nreviewer> ")
	if !ok || !strings.HasPrefix(after, "\nreviewer> It is good enough.\n") || !strings.Contains(after, "said: 1") {
		t.Errorf("the terminal got %q", text)
	}
}
