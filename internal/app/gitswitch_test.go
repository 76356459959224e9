package app_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/app"
)

// Row 110: plugins that several processes turn on at once, while others read the configuration anew, are all on in the end.
func TestSwitchesAtOnce(t *testing.T) {
	const n = 8
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf(`{"id": "p%d", "source_url": "https://example.org/o/p%d", "requested_ref": "", "resolved_sha": "%040d", "tree_sha256": "%064d", "installed_at": "", "by": "cli"}`, i, i, i, i))
	}
	_, home := world(t, map[string]string{
		"w/.agentenv/plugins.lock": `{"version": 2, "plugins": [` + strings.Join(rows, ",") + "]}\n",
		"w/.agentenv/config.toml":  "# mine\n[git_plugins]\nenabled = [\"other\"] # stays\n",
	})
	dir := filepath.Join(home, "w")
	process := func() *app.App {
		a := app.New(app.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Env: func(name string) (string, bool) { return home, name == "HOME" }})
		t.Cleanup(func() {
			if err := a.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		return a
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if changed, err := process().Git().Switch(t.Context(), fmt.Sprintf("p%d", i), true); err != nil || !changed {
				t.Errorf("p%d: %v, %v", i, changed, err)
			}
		})
		wg.Go(func() {
			a := process()
			if err := a.ConfigProblems().Err(); err != nil {
				t.Errorf("half a configuration was read: %v", err)
			}
			if _, _, err := a.Git().List(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(dir, ".agentenv", "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# mine\n", "# stays", `"other"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
	all, _, err := process().Git().List(t.Context())
	if err != nil || len(all) != n {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, p := range all {
		if !p.Enabled {
			t.Errorf("%s is not on:\n%s", p.ID, b)
		}
	}
}
