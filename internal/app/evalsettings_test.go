package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestEvalSettings: where the endpoint is, with which key, and where things are kept and told say nothing of how a trial ends; models and their parameters do.
func TestEvalSettings(t *testing.T) {
	settings := func(text string) string {
		t.Helper()
		home, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(home, ".agentenv"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".agentenv", "config.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"HOME": home, "AGENT_ENV_CONFIG": filepath.Join(home, ".agentenv", "config.toml")}
		a := New(Options{Dir: home, Log: slog.New(slog.DiscardHandler), Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
		defer func() {
			if err := a.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		out, err := a.evalSettings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(out)
	}
	const base = "[model]\ndefault = \"big\"\n"
	want := settings(base)
	if want != "map[setting model.default:big]" {
		t.Fatal(want)
	}
	for _, same := range []string{
		"base_url = \"http://127.0.0.1:4000/v1\"\n", "base_url = \"https://models.example:8443/v1\"\napi_key = \"k\"\n", "[explorer]\nport = 9999\n",
	} {
		if got := settings(base + same); got != want {
			t.Errorf("%q changes what a trial is by: %s", same, got)
		}
	}
	for _, other := range []string{"params = { temperature = 0.5 }\n", "roles = { judge = \"other\" }\n"} {
		if got := settings(base + other); got == want {
			t.Errorf("%q changes nothing", other)
		}
	}
}
