//go:build integration

package git

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// TestTenMembersCost: ten members take at most 1.3 times as long as git takes to clone the slowest of them, which is the last one and is served with a delay of
// every answer. The best of three counts on both sides.
func TestTenMembersCost(t *testing.T) {
	const delay = 700 * time.Millisecond
	repos := members(t, 10)
	server := gittest.Serve(t, repos...)
	slow := filepath.Base(repos[9].Bare)
	server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/"+slow) {
			time.Sleep(delay)
		}
		return false
	}
	best := func(work func()) time.Duration {
		least := time.Hour
		for range 3 {
			begin := time.Now()
			work()
			least = min(least, time.Since(begin))
		}
		return least
	}
	clone := best(func() {
		cmd := exec.CommandContext(t.Context(), "git", "clone", "-q", "--depth=1", server.Of(repos[9]), filepath.Join(t.TempDir(), "clone"))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	whole := best(func() {
		var wants []Want
		for _, r := range repos {
			wants = append(wants, Want{URL: server.Of(r)})
		}
		mustInstall(t, newStore(t), false, wants...)
	})
	ratio := float64(whole) / float64(clone)
	t.Logf("ten members in %s, the slowest cloned in %s: %.2f", whole.Round(time.Millisecond), clone.Round(time.Millisecond), ratio)
	if ratio > 1.3 {
		t.Errorf("it is more than 1.3: %.2f", ratio)
	}
}
