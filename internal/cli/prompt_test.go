package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
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

// TestHostileRequirementsReachNoInstaller: what isn't a plain requirement is refused at a terminal without a question, and no installer is started; one that is, is
// asked about and starts it.
func TestHostileRequirementsReachNoInstaller(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	bin := t.TempDir()
	spied := filepath.Join(t.TempDir(), "argv")
	spy := "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >>" + spied + "\nexit 1\n"
	for _, name := range []string{"uv", "uvx", "pip", "pip3", "pipx"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(spy), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, requirement, why, reply string, asked int) {
		t.Helper()
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, "b", "tasks"), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(requirement) // as TOML has it, too
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"bundle.toml": "requires = [" + string(text) + "]\n", "tasks/t.json": `[{"id": "a", "type": "aggregate_verifiers"}]`} {
			if err := os.WriteFile(filepath.Join(home, "b", file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env := []string{"HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state"), "PATH=" + bin + ":" + os.Getenv("PATH")}
		for _, args := range [][]string{{"run", "./b"}, {"bundle", "register", "./b"}} {
			got, err := answer(t.Context(), home, env, reply, args...)
			if err != nil {
				t.Fatal(err)
			}
			if got.code != 1 || got.asked != asked || !strings.Contains(got.out, why) || strings.ContainsAny(got.out, "\x1b\x07\u202e\u200b\u2066") {
				t.Errorf("%q: ends with %d, asks %d times, says\n%q", args, got.code, got.asked, got.out)
			}
		}
	}
	const unseen, none, url = "holds a character that can't be printed", "isn't a requirement", "names a URL"
	for requirement, why := range map[string]string{
		"evil; os_name != \"\x1b[2K\ragentenv-browser\"": unseen, "a; os_name != '\u202ex'": unseen, "a; os_name != '\u2066x'": unseen, "a\u200b>=1": unseen,
		"a\n--index-url=http://x.invalid": unseen, "a\x07": unseen, "a\u00a0>=1": unseen,
		"a @ https://x.invalid/a.whl": url, "a@git+https://x.invalid/a": url, "a @ file:///a.whl ; os_name=='nt'": url,
		"https://x.invalid/a.whl": none, "--index-url=https://x.invalid": none, "-e .": none, "-r evil": none, "./a": none, "a --pre": none, "a --index-url https://x.invalid": none, "": none, "  ": none, "\t": unseen,
	} {
		t.Run(requirement, func(t *testing.T) { refused(t, requirement, why, "y", 0) })
	}
	if b, err := os.ReadFile(spied); err == nil {
		t.Fatalf("an installer was started:\n%s", b)
	}
	refused(t, "agentenv-e2e-acme>=1.2", "Install agentenv-e2e-acme>=1.2 with agent-env plugin add? [y/N]: y\nError: ", "y", 1)
	if b, err := os.ReadFile(spied); err != nil || !strings.HasPrefix(string(b), "venv\n") {
		t.Errorf("what is agreed to starts no installer: %s, %v", b, err)
	}
}
