package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin"
)

// killedRole has the test binary start a plugin that ignores the end of its input and writes its id into a file, and wait to be killed.
const killedRole = "HOST_TEST_KILLED"

func holdPlugin(pid string) {
	p := host.New(host.Program{Name: "deaf 1", Argv: []string{os.Args[0]}, Env: []string{role + "=deaf", "PLAY_PID=" + pid, "PLAY_DAEMON=" + pid + "-daemon"}}, host.Options{
		Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler), TempDir: filepath.Dir(pid), Keeper: keeper.New(nil),
	})
	_ = p.Call(context.Background(), "x", nil, func(string) any { return nil }, nil) // it never answers
}

// TestKilled: a plugin that doesn't look at its input is gone when what started it was killed, with what has left it for a session of its own, and its folder goes with the next plugin's start.
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
	if !lives(t, pid) || !lives(t, pid+"-daemon") {
		t.Fatal("the plugin isn't there")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for end := time.Now().Add(5 * time.Second); lives(t, pid) || lives(t, pid+"-daemon"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the plugin outlives what started it")
		}
	}
	swept(t, filepath.Dir(pid))
}

// lives tells whether the process is alive whose id is in a file.
func lives(t *testing.T, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// fork leaves a process in a session of its own, whose parent is gone, with its id in a file.
func fork() error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{plugin.Variable + "=x", role + "=forks", "PLAY_DAEMON=" + os.Getenv("PLAY_DAEMON")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Run()
}

func playFork(pid string) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{plugin.Variable + "=x", role + "=silent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
	if err := os.WriteFile(pid, fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		return 1
	}
	return 0
}

// TestNothingIsLeft: what a plugin starts that leaves its session and its parent is ended with it, however it ends.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, do string }{{"closed", ""}, {"ends by itself", "exit"}, {"is killed", "kill"}, {"breaks the protocol", "breaks"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pid := filepath.Join(t.TempDir(), "daemon")
			r := start(t, "", nil, "PLAY_DAEMON="+pid)
			if out := r.run(t.Context(), "daemon", 1); out.err != nil {
				t.Fatal(out.err)
			}
			if !lives(t, pid) {
				t.Fatal("there is no process that could be left")
			}
			if c.do == "" {
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else if out := r.run(t.Context(), c.do, 1); out.err == nil {
				t.Fatal("it didn't end")
			}
			if lives(t, pid) {
				t.Error("what the plugin started outlives it")
			}
		})
	}
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
