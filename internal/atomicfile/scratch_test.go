package atomicfile_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/atomicfile"
)

const scratchVar = "AGENTENV_TEST_SCRATCH"

// TestScratchUntilKilled is the process that TestScratch kills.
func TestScratchUntilKilled(t *testing.T) {
	if os.Getenv(scratchVar) == "" {
		t.Skip("for TestScratch alone")
	}
	s, err := atomicfile.NewScratch("agent-env-x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Println("stands")
	<-t.Context().Done()
}

// TestScratch: what a killed process has left goes with the next folder of that name; what is in use, another's, or no folder stays.
func TestScratch(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	left := func() []string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(tmp, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return names
	}
	held, err := atomicfile.NewScratch("agent-env-x")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestScratchUntilKilled$")
	cmd.Env = append(os.Environ(), scratchVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() || len(left()) != 2 {
		t.Errorf("%q", left())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, name := range []string{"agent-env-x-notours", "agent-env-y-1"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(tmp, "agent-env-y-1"), filepath.Join(tmp, "agent-env-x-2")); err != nil {
		t.Fatal(err)
	}
	next, err := atomicfile.NewScratch("agent-env-x")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Base(held.Dir), filepath.Base(next.Dir), "agent-env-x-2", "agent-env-x-notours", "agent-env-y-1"}
	if slices.Sort(want); !slices.Equal(left(), want) {
		t.Errorf("%q, want %q", left(), want)
	}
	for range 2 {
		if err := next.Remove(); err != nil {
			t.Error(err)
		}
	}
	if err := held.Remove(); err != nil {
		t.Error(err)
	}
	if got := left(); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// Many that begin at once don't take each other's folders away.
func TestScratchesAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				s, err := atomicfile.NewScratch("agent-env-x")
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(s.Dir, "f"), nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := s.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
