package keeper_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/sandbox"
)

// holdRole has the test binary keep a program that takes its time to leave, and wait to be killed.
const holdRole = "KEEPER_TEST_HOLD"

func TestMain(m *testing.M) {
	pid1.Dispatch()
	if script := os.Getenv(holdRole); script != "" {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Stdout = os.Stdout
		kept, err := keeper.New(nil).Start(cmd, 20*time.Second)
		if err == nil {
			err = kept.Wait()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// begin keeps a shell and answers what it says; whoever of its tree lives holds the other end of that.
func begin(t *testing.T, script string) (*keeper.Kept, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k := keeper.New(nil)
	t.Cleanup(func() { _ = r.Close(); k.Close() })
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Stdout = w
	kept, err := k.Start(cmd, 0)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return kept, r
}

// rest is what is still said until nobody of a tree lives.
func rest(t *testing.T, r *os.File) string {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("somebody of the tree is alive: %v", err)
	}
	return string(b)
}

func TestEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   string
	}{
		"well":      {"exit 0", ""},
		"badly":     {"exit 7", "ended with exit code 7"},
		"by signal": {"kill -USR1 $$", "was ended by the signal user defined signal 1"},
		"leaving":   {"setsid sh -c 'setsid sleep 600 & sleep 600' & sleep 600 & exit 3", "ended with exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, out := begin(t, c.script)
			err := kept.Wait()
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("it %v, want %q", err, c.want)
			}
			rest(t, out)
			kept.Signal(syscall.SIGKILL) // it is over
		})
	}
}

// TestSignal: a signal reaches the program's group and not who left it; SIGKILL ends them all.
func TestSignal(t *testing.T) {
	t.Parallel()
	kept, out := begin(t, "trap 'echo heard' TERM; setsid sh -c 'echo up; exec sleep 600' & while :; do wait; done")
	in := bufio.NewReader(out)
	line := func(want string) {
		t.Helper()
		if got, err := in.ReadString('\n'); strings.TrimSpace(got) != want {
			t.Fatalf("it says %q, %v; want %s", got, err, want)
		}
	}
	line("up")
	kept.Signal(syscall.SIGTERM)
	line("heard")
	kept.Signal(syscall.SIGKILL)
	if got := fmt.Sprint(kept.Wait()); got != "was ended by the signal killed" {
		t.Errorf("it %s", got)
	}
	rest(t, out)
}

// TestCannotStart: what can't be started is told as without a keeper, and a binary that is no guest program keeps nothing.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	k := keeper.New(nil)
	t.Cleanup(k.Close)
	var path *os.PathError
	if _, err := k.Start(exec.CommandContext(t.Context(), "/no/such/program"), 0); !errors.As(err, &path) || path.Path != "/no/such/program" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it answers %v", err)
	}
	if _, err := k.Start(exec.CommandContext(t.Context(), "no-such-program"), 0); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("it answers %v", err)
	}
	none := keeper.New(func() ([]byte, error) { return nil, sandbox.ErrUnsupported })
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	if _, err := none.Start(cmd, 0); !errors.Is(err, sandbox.ErrUnsupported) || cmd.Run() != nil {
		t.Errorf("without a guest program it answers %v, and the command isn't as it was", err)
	}
}

// TestGiven: folder, environment, arguments and files are the program's.
func TestGiven(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k, dir := keeper.New(nil), t.TempDir()
	t.Cleanup(func() { _ = r.Close(); k.Close() })
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo "$PWD $0 $A" >&3; ls -l /proc/self/fd >&3; ps -o pgid= -p $$ >&3; echo $$ >&3`, "zero")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = dir, []string{"PATH=" + os.Getenv("PATH"), "A=b c"}, []*os.File{w}
	kept, err := k.Start(cmd, 0)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := kept.Wait(); err != nil {
		t.Error(err)
	}
	got := rest(t, r)
	if want := dir + " zero b c\n"; !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q first", got, want)
	}
	if strings.Contains(got, "socket:") || strings.Contains(got, "memfd:") {
		t.Errorf("it holds the keeper's files: %s", got)
	}
	f := strings.Fields(got)
	if pgid, pid := f[len(f)-2], f[len(f)-1]; pgid != pid || pid != strconv.Itoa(kept.PID) {
		t.Errorf("process %s of group %s, told as %d", pid, pgid, kept.PID)
	}
}

// TestGrace: where what wanted a program is killed, the program hears SIGTERM and has its time, and nothing is left.
func TestGrace(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdRole+"=trap 'echo bye; exit 0' TERM; setsid sleep 600 & echo up; while :; do wait; done")
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := rest(t, r); got != "bye\n" {
		t.Errorf("it said %q", got)
	}
}

// guestProgram is the guest program where it has been built for this machine's architecture; nil: this binary.
func guestProgram(b *testing.B) func() ([]byte, error) {
	b.Helper()
	program, err := os.ReadFile("../sandbox/local/guestbin/agent-env-guest-linux-" + runtime.GOARCH)
	if err != nil {
		b.Log("the guest program isn't built: this binary, which is larger, stands for it")
		return nil
	}
	return func() ([]byte, error) { return program, nil }
}

// BenchmarkStart is a program from nothing to its end.
func BenchmarkStart(b *testing.B) {
	run := func(b *testing.B, start func(cmd *exec.Cmd) (func() error, error)) {
		for b.Loop() {
			wait, err := start(exec.CommandContext(b.Context(), "/bin/true"))
			if err == nil {
				err = wait()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("alone", func(b *testing.B) {
		run(b, func(cmd *exec.Cmd) (func() error, error) { return cmd.Wait, cmd.Start() })
	})
	b.Run("kept", func(b *testing.B) {
		k := keeper.New(guestProgram(b))
		defer k.Close()
		run(b, func(cmd *exec.Cmd) (func() error, error) {
			kept, err := k.Start(cmd, 0)
			if err != nil {
				return nil, err
			}
			return kept.Wait, nil
		})
	})
}
