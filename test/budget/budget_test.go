//go:build integration

// Package budget_test holds the built binary to its size and start-up budgets.
package budget_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func builtBinary(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin", "agent-env"))
	if err == nil {
		_, err = os.Stat(bin)
	}
	if err != nil {
		t.Fatalf("run `make build` first: %v", err)
	}
	return bin
}

// installed is a copy of bin. It is not read whole: a child's peak of memory begins with what this process holds.
func installed(t *testing.T, bin string) string {
	t.Helper()
	from, err := os.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(t.TempDir(), "agent-env"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

func TestBudgetSize(t *testing.T) {
	for name, limit := range map[string]int64{
		"bin/agent-env": 44 << 20,
		"internal/sandbox/local/guestbin/agent-env-guest-linux-amd64": 6 << 20,
		"internal/sandbox/local/guestbin/agent-env-guest-linux-arm64": 6 << 20,
	} {
		info, err := os.Stat(filepath.Join("..", "..", name))
		if err != nil {
			t.Errorf("run `make build` first: %v", err)
			continue
		}
		t.Logf("%s: %.1f MB of %d", name, float64(info.Size())/(1<<20), limit>>20)
		if info.Size() > limit {
			t.Errorf("%s is larger than %d MB", name, limit>>20)
		}
	}
}

// TestBudgetStart: the best of twenty, since the machine has other work; of a copy, since how much of a file the kernel maps beside what is read depends on
// how the file was written, and a linker writes as no installer does.
func TestBudgetStart(t *testing.T) {
	const (
		cpuLimit = 15 * time.Millisecond
		rssLimit = 24 << 10 // KiB
	)
	bin := installed(t, builtBinary(t))
	for _, arg := range []string{"--version", "--help"} {
		best, rss := time.Hour, int64(1<<40)
		for range 20 {
			cmd := exec.CommandContext(t.Context(), bin, arg)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			rss = min(rss, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
		}
		t.Logf("agent-env %s: %v CPU of %v, %.1f MB of %d", arg, best, cpuLimit, float64(rss)/1024, rssLimit>>10)
		if best > cpuLimit {
			t.Errorf("agent-env %s uses %v of CPU, the budget is %v", arg, best, cpuLimit)
		}
		if rss > rssLimit {
			t.Errorf("agent-env %s holds %d KiB, the budget is %d", arg, rss, rssLimit)
		}
	}
}
