package app_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
	"agentenv.internal/agentenv/internal/treestore"
)

// TestRequirementsCost: what 20 requirements of a bundle cost where 200 distributions are installed, beside the same bundle without them.
func TestRequirementsCost(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var wheels []wheeltest.Wheel
	for i := range 200 {
		w := wheeltest.Acme("1.2.0")
		w.Name = fmt.Sprintf("agentenv-many-%03d", i)
		w.Requires = append(slices.Repeat([]string{"httpx>=0.27; python_version >= '3.9' and extra == 'gpu'"}, 19), "agentenv-many-007>=1; extra == 'img'")
		wheels = append(wheels, w)
	}
	plugins := filepath.Join(home, ".local", "state", "agentenv", "plugins")
	store := treestore.Open(filepath.Join(plugins, "generations"), treestore.Options{Volatile: true})
	if err := wheeltest.Generation(t.Context(), store, "test", wheels...); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plugins, "current.json"), []byte(`{"format_version":1,"generation":"test"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range 20 {
		texts = append(texts, fmt.Sprintf("%q", fmt.Sprintf("agentenv-many-%03d[img]>=1.2,<2; python_version >= '3.9'", i*10)))
	}
	for name, text := range map[string]string{"with": "requires = [" + strings.Join(texts, ", ") + "]\n", "without": "requires = []\n"} {
		if err := os.MkdirAll(filepath.Join(home, name, "tasks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name, "tasks", "t.json"), []byte(`[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}]`), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name, "bundle.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	least := func(bundle string) time.Duration {
		best := time.Hour
		for range 15 {
			a := app.New(app.Options{
				Dir: home, Log: slog.New(slog.DiscardHandler),
				Env: func(name string) (string, bool) { return home, name == "HOME" },
			})
			start := time.Now()
			c, err := a.Check(t.Context(), "./"+bundle, false)
			best = min(best, time.Since(start))
			if err != nil || c.Problems.HasErrors() {
				t.Fatal(err, c.Problems)
			}
			if err := a.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return best
	}
	scanned := least("with") - least("without")
	if err := dist.Index(store.PathOf("test")); err != nil {
		t.Fatal(err)
	}
	without := least("without")
	adds := least("with") - without
	t.Logf("20 requirements with markers and extras against 200 distributions add %v to %v (%v without an index)", adds, without, scanned)
	if adds > 5*time.Millisecond {
		t.Errorf("20 requirements add %v", adds)
	}
}
