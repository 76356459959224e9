package host_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin"
)

// killedRole has the test binary start a plugin that ignores the end of its input and writes its id into a file, and wait to be killed.
const killedRole = "HOST_TEST_KILLED"

func holdPlugin(pid string) {
	p := host.New(host.Program{Name: "deaf 1", Argv: []string{os.Args[0]}, Env: []string{role + "=deaf", "PLAY_PID=" + pid}}, host.Options{
		Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), TempDir: filepath.Dir(pid),
	})
	_ = p.Call(context.Background(), "x", nil, func(string) any { return nil }, nil) // it never answers
}

// TestKilled: a plugin that doesn't look at its input is gone when what started it was killed, and its folder goes with the next plugin's start.
func TestKilled(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedRole+"="+pid)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for end := time.Now().Add(20 * time.Second); len(b) == 0; time.Sleep(10 * time.Millisecond) {
		if b, _ = os.ReadFile(pid); time.Now().After(end) {
			t.Fatal("the plugin doesn't come up")
		}
	}
	proc := "/proc/" + strings.TrimSpace(string(b)) + "/stat"
	if _, err := os.Stat(proc); err != nil {
		t.Fatal("the plugin isn't there")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(proc)
		if err != nil || strings.Contains(string(b), ") Z ") {
			swept(t, filepath.Dir(pid))
			return
		}
	}
	t.Error("the plugin outlives what started it")
}

// swept fails unless a plugin that is started and closed leaves no folder in dir, where one of a killed program's plugins is.
func swept(t *testing.T, dir string) {
	t.Helper()
	left := func() []string {
		all, err := filepath.Glob(filepath.Join(dir, "agentenv-plugin-*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := left(); len(got) != 1 {
		t.Fatalf("the killed program left %q", got)
	}
	p := host.New(host.Program{Name: "next 1", Argv: []string{os.Args[0]}, Env: []string{role + "=play"}}, host.Options{
		Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), TempDir: dir,
	})
	if err := p.Call(t.Context(), plugin.MethodTypes, nil, func(string) any { return struct{}{} }, nil); err != nil {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := left(); len(got) != 0 {
		t.Errorf("%q stay", got)
	}
}
