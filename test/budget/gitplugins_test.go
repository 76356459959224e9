//go:build integration

package budget_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
)

// TestBudgetGitPlugins: with 200 git plugins `plugin list` takes less than 30 ms, the best of twenty, or of forty more where it took longer, and a sync of what is here unchanged starts no git and
// asks no server for anything.
func TestBudgetGitPlugins(t *testing.T) {
	const limit = 30 * time.Millisecond
	bin := builtBinary(t)
	home := t.TempDir()
	ws := filepath.Join(home, "w", ".agentenv")
	if err := os.MkdirAll(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	repo := gittest.Plugin(t, "one", "data", strings.Repeat("x", 1000))
	server := gittest.Serve(t, repo)
	server.Before = func(http.ResponseWriter, *http.Request) bool { return false }
	path := os.Getenv("PATH")
	run := func(args ...string) (string, time.Duration) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Env = filepath.Dir(ws), []string{"PATH=" + path, "HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state")}
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		took := time.Since(begin)
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out), took
	}
	if err := os.WriteFile(filepath.Join(ws, "config.toml"), []byte("[git_plugins]\nenabled = [\"p000\"]\n[git_plugins.sources]\nplain_http = true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("plugin", "install", server.Of(repo))
	lock := filepath.Join(ws, "plugins.lock")
	b, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		Version int              `json:"version"`
		Plugins []map[string]any `json:"plugins"`
	}
	if err := json.Unmarshal(b, &l); err != nil || len(l.Plugins) != 1 {
		t.Fatalf("%v: %s", err, b)
	}
	one := l.Plugins[0]
	l.Plugins = nil
	for i := range 200 {
		row := map[string]any{}
		for k, v := range one {
			row[k] = v
		}
		row["id"] = fmt.Sprintf("p%03d", i)
		l.Plugins = append(l.Plugins, row)
	}
	if b, err = json.MarshalIndent(l, "", "  "); err == nil {
		err = os.WriteFile(lock, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	for i := range 60 {
		if i >= 20 && best <= limit {
			break
		}
		out, took := run("plugin", "list", "--no-load")
		if n := strings.Count(out, "\np"); n < 200 {
			t.Fatalf("%d plugins are listed:\n%s", n, out)
		}
		best = min(best, took)
	}
	t.Logf("plugin list with 200 git plugins: %s of %s", best.Round(100*time.Microsecond), limit)
	if best > limit {
		t.Errorf("it takes %s", best)
	}
	before := server.Requests.Load()
	path = t.TempDir() // no git either
	out, took := run("plugin", "sync")
	if n := strings.Count(out, ": present"); n != 200 {
		t.Errorf("%d plugins are present:\n%s", n, out)
	}
	if n := server.Requests.Load() - before; n != 0 {
		t.Errorf("sync asked the server %d times", n)
	}
	t.Logf("plugin sync of the same: %s, no request", took.Round(time.Millisecond))
}
