package pyhost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/pyhost"
)

// click puts the click of this machine's Python into an environment; a plugin's own dependencies bring it otherwise.
func click(t *testing.T, python string) {
	t.Helper()
	base, lib := basePython()
	out, err := exec.CommandContext(t.Context(), base, "-c", "import click, os; print(os.path.dirname(click.__file__))").Output()
	if err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("python3 has no click")
		}
		t.Skip("python3 has no click")
	}
	site := filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", lib, "site-packages", "click")
	if err := os.CopyFS(site, os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		t.Fatal(err)
	}
}

// terminal is a Python host whose messages go over a socket, and whose stdin and stdout are a person's.
func terminal(t *testing.T, python, stdin string, calls map[string]func(json.RawMessage) (any, error)) (*bridge, string) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	argv := pyhost.Argv(python)
	b := &bridge{t: t, cmd: exec.CommandContext(t.Context(), argv[0], argv[1:]...), calls: calls, temp: t.TempDir(), waiting: map[int]chan message{}, done: make(chan struct{}), in: conn}
	b.cmd.Env = []string{"AGENTENV_PLUGIN=fd:3", "PATH=" + os.Getenv("PATH"), "HOME=" + b.temp, "AGENTENV_BINARY=/bin/echo"}
	out, err := os.Create(filepath.Join(b.temp, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	errs, err := os.Create(filepath.Join(b.temp, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	b.errs = errs.Name()
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr, b.cmd.ExtraFiles = strings.NewReader(stdin), out, errs, []*os.File{theirs}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{theirs, out, errs} {
		_ = f.Close()
	}
	go b.read(conn)
	t.Cleanup(b.stop)
	if _, err := b.call("initialize", map[string]any{"protocol_versions": []int{1}, "temp_dir": b.temp}); err != nil {
		t.Fatalf("initialize: %v\n%s", err, &b.err)
	}
	return b, out.Name()
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCommands(t *testing.T) {
	t.Parallel()
	python := generation(t, "civ")
	click(t, python)
	civ := entry{Group: "agent_env.cli_plugins", Name: "civ", Value: "civ_match.cli:civ"}
	calls, _ := host(t, "http://127.0.0.1:9")
	b, out := terminal(t, python, "yes\n", calls) // one answer, then the end
	saidOut, saidErr := 0, 0
	for _, r := range []struct{ args, answer, out, errs string }{
		{"recordings", `{"exit_code":1}`, "", "Error: no recordings\n"},
		{"setup --agent", `{"exit_code":0}`, "Registered env 'civ' version 1 (image civ:1)\nRegistered A2A agent 'civ-player' version 1\n", ""},
		{"ask", `{"exit_code":0}`, "answer True\n", ""},
		{"ask", `{"exit_code":1}`, "", "Aborted!\n"},
		{"crash", `{"exit_code":1}`, "", "Error: civ: the map is lost (civ_match/cli.py:"},
		{"nothing", `{"exit_code":2}`, "", "No such command 'nothing'"},
		{"--help", `{"exit_code":0}`, "Usage: agent-env civ [OPTIONS] COMMAND [ARGS]...", ""},
	} {
		raw, err := b.call("command/run", map[string]any{"call": "c-1", "entry": civ, "args": strings.Fields(r.args)})
		o, e := text(t, out), text(t, b.errs)
		if newOut, newErr := o[saidOut:], e[saidErr:]; err != nil || string(raw) != r.answer || !strings.Contains(newOut, r.out) || !strings.Contains(newErr, r.errs) || strings.Contains(newErr, "Traceback") {
			t.Errorf("civ %s: %s, %v\nstdout %s\nstderr %s", r.args, raw, err, newOut, newErr)
		}
		saidOut, saidErr = len(o), len(e)
	}
	opt := entry{Group: "agent_env.cli_root_options", Name: "loud", Value: "civ_match.cli:loud"}
	for _, r := range []struct {
		args []string
		out  string
	}{{[]string{"--loud"}, "loud is True\n"}, {nil, "loud is None\n"}} {
		raw, err := b.call("command/run", map[string]any{"call": "c-1", "entry": opt, "args": append([]string{}, r.args...)})
		if o := text(t, out); err != nil || string(raw) != `{"exit_code":-1}` || o[saidOut:] != r.out {
			t.Errorf("option %v: %s, %v, %s", r.args, raw, err, o[saidOut:])
		}
		saidOut = len(text(t, out))
	}
	stop(t, b)
}

// A command that becomes another program leaves its exit code, and no answer.
func TestACommandThatBecomesAnotherProgram(t *testing.T) {
	t.Parallel()
	python := generation(t, "civ")
	click(t, python)
	b, out := terminal(t, python, "", nil)
	_, err := b.call("command/run", map[string]any{"call": "c-1", "entry": entry{Group: "agent_env.cli_plugins", Name: "civ", Value: "civ_match.cli:civ"}, "args": []string{"serve"}})
	if err == nil {
		t.Error("there is an answer")
	}
	var exit *exec.ExitError
	if err := b.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 || !strings.Contains(text(t, out), "serving") {
		t.Errorf("ended with %v, having said %s", err, text(t, out))
	}
}

// Ctrl-C reaches the command as it reaches every program at a terminal.
func TestInterruptOfACommand(t *testing.T) {
	t.Parallel()
	python := generation(t)
	click(t, python)
	install(t, python, map[string]string{"sleeper.py": "import click, time\n\n@click.command()\ndef main():\n    click.echo('sleeping')\n    time.sleep(30)\n"})
	b, _ := terminal(t, python, "", nil)
	_, c := b.send("command/run", map[string]any{"call": "c-1", "entry": entry{Group: "agent_env.cli_plugins", Name: "sleeper", Value: "sleeper:main"}, "args": []string{}})
	time.Sleep(1500 * time.Millisecond)
	_ = b.cmd.Process.Signal(syscall.SIGINT)
	if raw, err := await(c); err != nil || string(raw) != `{"exit_code":1}` {
		t.Errorf("%s, %v", raw, err)
	}
	stop(t, b)
	if e := text(t, b.errs); !strings.Contains(e, "Aborted!") {
		t.Errorf("stderr: %s", e)
	}
}

// `python -m agent_env.cli` is the program that started the plugin.
func TestTheProgramAsAModule(t *testing.T) {
	t.Parallel()
	python := generation(t)
	for _, r := range []struct {
		binary, out, errs string
		code              int
	}{
		{"/bin/echo", "run b --json\n", "", 0},
		{"", "", "Error: there is no agent-env on the PATH; install it, or name it in AGENTENV_BINARY\n", 127},
		{"/nowhere/agent-env", "", "Error: /nowhere/agent-env can't be started: No such file or directory\n", 126},
	} {
		cmd := exec.CommandContext(t.Context(), python, "-I", "-m", "agent_env.cli", "run", "b", "--json")
		cmd.Env = []string{"PATH=" + t.TempDir(), "AGENTENV_BINARY=" + r.binary}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		if out.String() != r.out || errs.String() != r.errs || cmd.ProcessState.ExitCode() != r.code {
			t.Errorf("%q: exit %d, %q, %q", r.binary, cmd.ProcessState.ExitCode(), &out, &errs)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "-I", "-m", "agentenv_host")
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "it does nothing by itself") {
		t.Errorf("started by a person: %s, %v", out, err)
	}
}
