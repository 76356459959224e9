package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// answered is how a command on a terminal ended.
type answered struct {
	out    string
	code   int
	signal syscall.Signal // that ended it; 0 for none
	asked  int            // how many questions
}

// answer runs agent-env with a terminal for all its streams, and answers its first question: by a text and Enter, by Ctrl-C ("^C") or by SIGTERM ("TERM").
func answer(ctx context.Context, dir string, env []string, reply string, args ...string) (answered, error) {
	cmd := exec.CommandContext(ctx, "agent-env", args...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "TERM=dumb", "NO_COLOR=1"), env...)
	f, err := pty.Start(cmd)
	if err != nil {
		return answered{}, err
	}
	defer f.Close()
	var out bytes.Buffer
	replied := false
	for b := make([]byte, 4096); ; {
		n, err := f.Read(b)
		out.Write(b[:n])
		if err != nil { // a terminal whose other side is gone answers EIO
			break
		}
		if replied || !bytes.Contains(out.Bytes(), []byte("[y/N]: ")) {
			continue
		}
		replied = true
		switch reply {
		case "TERM":
			err = cmd.Process.Signal(syscall.SIGTERM)
		case "^C":
			_, err = f.WriteString("\x03")
		default:
			_, err = f.WriteString(reply + "\n")
		}
		if err != nil {
			return answered{}, err
		}
	}
	got := answered{out: strings.ReplaceAll(out.String(), "\r\n", "\n")}
	got.asked = strings.Count(got.out, "[y/N]: ")
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return answered{}, err
	}
	got.code = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		got.signal = ws.Signal()
	}
	return got, nil
}

// TestInstallQuestion: a bundle whose requirements alone are unmet is asked about, once, where somebody can answer; every answer but yes changes nothing.
func TestInstallQuestion(t *testing.T) {
	const (
		question = "Install agentenv-e2e-acme>=1.2 with agent-env plugin add? [y/N]: "
		refusal  = "Error: bundle.toml: requires 'agentenv-e2e-acme>=1.2', which isn't installed; install it with: agent-env plugin add 'agentenv-e2e-acme>=1.2'\n"
		acme     = `requires = ["agentenv-e2e-acme>=1.2"]`
	)
	for name, c := range map[string]struct {
		manifest, task string
		reply          string
		args           []string
		env            []string
		asked          int
		code           int
		signal         syscall.Signal
		ends           string
	}{
		"no":                   {reply: "n", asked: 1, code: 1, ends: question + "n\n" + refusal},
		"Enter":                {reply: "", asked: 1, code: 1, ends: question + "\n" + refusal},
		"Ctrl-C":               {reply: "^C", asked: 1, code: 1, ends: "Aborted!\n"},
		"SIGTERM":              {reply: "TERM", asked: 1, code: -1, signal: syscall.SIGTERM, ends: question + "\n"},
		"registered":           {args: []string{"bundle", "register", "./b"}, reply: "n", asked: 1, code: 1, ends: question + "n\n" + refusal},
		"registered, SIGTERM":  {args: []string{"bundle", "register", "./b"}, reply: "TERM", asked: 1, code: -1, signal: syscall.SIGTERM},
		"a dry run":            {args: []string{"run", "./b", "--dry-run"}, code: 1, ends: refusal},
		"a dry registration":   {args: []string{"bundle", "register", "./b", "--dry-run"}, code: 1, ends: refusal},
		"run again":            {env: []string{"AGENT_ENV_RERUN=1"}, code: 1, ends: refusal},
		"an escape":            {manifest: `requires = ["evil; os_name != \"\u001b[2K\ragentenv-browser\""]`, code: 1},
		"the program itself":   {manifest: `requires = ["agentenv-framework>=99"]`, code: 1, ends: "upgrade agent-env with the installer that installed it\n"},
		"and another problem":  {task: `[{"id": "a", "type": "deploy_sandbox", "sandbox_mode": "vm"}]`, code: 1, ends: "sandbox_name is missing; write it: a string (line 1)\n"},
		"and the program, no":  {manifest: `requires = ["agentenv-framework>=99", "agentenv-e2e-acme>=1.2"]`, reply: "n", asked: 1, code: 1},
		"without an installer": {env: []string{"PATH="}, reply: "y", asked: 1, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			if c.manifest == "" {
				c.manifest = acme
			}
			if c.task == "" {
				c.task = `[{"id": "a", "type": "aggregate_verifiers"}]`
			}
			if c.args == nil {
				c.args = []string{"run", "./b"}
			}
			for file, text := range map[string]string{"bundle.toml": c.manifest, "tasks/t.json": c.task} {
				file = filepath.Join(home, "b", file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			state := filepath.Join(home, "state")
			got, err := answer(t.Context(), home, append([]string{"HOME=" + home, "XDG_STATE_HOME=" + state}, c.env...), c.reply, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got.code != c.code || got.signal != c.signal || got.asked != c.asked || !strings.HasSuffix(got.out, c.ends) {
				t.Errorf("ends with %d (%v), asks %d times, says\n%q", got.code, got.signal, got.asked, got.out)
			}
			if strings.Contains(got.out, "Running it again") || strings.ContainsAny(got.out, "\x1b\u202e") || strings.Contains(got.out, "Cancelling") {
				t.Errorf("says\n%q", got.out)
			}
			if _, err := os.Stat(filepath.Join(state, "agentenv", "plugins", "current.json")); err == nil {
				t.Error("something was installed")
			}
		})
	}
}
