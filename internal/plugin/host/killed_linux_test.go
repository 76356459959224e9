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
)

// killedRole has the test binary start a plugin that ignores the end of its input and writes its id into a file, and wait to be killed.
const killedRole = "HOST_TEST_KILLED"

func holdPlugin(pid string) {
	p := host.New(host.Program{Name: "deaf 1", Argv: []string{os.Args[0]}, Env: []string{role + "=deaf", "PLAY_PID=" + pid}}, host.Options{
		Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), TempDir: filepath.Dir(pid),
	})
	_ = p.Call(context.Background(), "x", nil, func(string) any { return nil }, nil) // it never answers
}

// TestKilled: a plugin that doesn't look at its input is gone when what started it was killed.
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
			return
		}
	}
	t.Error("the plugin outlives what started it")
}
