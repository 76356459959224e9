package app_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/app"
)

// world is a home with a working folder in it.
func world(t *testing.T, files map[string]string) (a *app.App, home string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"HOME": home, "KEY": "value"}
	a = app.New(app.Options{
		Dir: home, Log: slog.New(slog.DiscardHandler),
		Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	t.Cleanup(func() {
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return a, home
}

func TestBundle(t *testing.T) {
	a, home := world(t, map[string]string{"b/tasks/t.json": "[]", "wordcount/tasks/t.json": "[]", "file": "", "s p/ü/tasks/t.json": "[]"})
	for text, want := range map[string]string{
		"hello":                    "@local/agentenv-framework/hello",
		"agentenv-framework/hello": "@local/agentenv-framework/hello",
		"b":                        "@local/~/b",
		"./b":                      "@local/~/b",
		"~/b":                      "@local/~/b",
		"b/":                       "@local/~/b",
		"b/../b":                   "@local/~/b",
		home + "/b":                "@local/~/b",
		"wordcount":                "@local/~/wordcount", // a folder wins
		"s p/ü":                    "@local/~/s p/ü",
	} {
		src, err := a.Bundle(t.Context(), text)
		if err != nil || src.IDRoot != want {
			t.Errorf("%s: %q, %v, want %q", text, src.IDRoot, err, want)
			continue
		}
		src.Close()
	}
	for text, want := range map[string]string{
		"":            "the bundle's name is empty",
		"helo":        "'helo' is neither a folder nor an installed bundle; did you mean hello?",
		"zzzzzz":      "agent-env run lists the installed ones",
		"./hello":     "/hello: no such folder",
		"~/nowhere":   "/nowhere: no such folder",
		"file":        "'file' is neither a folder nor an installed bundle",
		"./file":      "this is neither a folder nor an installed bundle",
		"/":           "can't be a bundle",
		"other/hello": "did you mean",
	} {
		src, err := a.Bundle(t.Context(), text)
		if err == nil {
			src.Close()
			t.Errorf("%q: finds %s", text, src.Root)
		} else if !strings.Contains(err.Error(), want) && text != "other/hello" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestChain(t *testing.T) {
	a, _ := world(t, nil)
	if got, err := a.Chain(t.Context(), ""); err != nil || got != nil {
		t.Error(got, err)
	}
	if got, err := a.Chain(t.Context(), " local , local"); err != nil || len(got) != 2 {
		t.Error(got, err)
	}
	_, err := a.Chain(t.Context(), "lokal,nope")
	if err == nil || err.Error() != "--sandbox 'lokal': no such provider here; did you mean local?\n--sandbox 'nope': no such provider here; there are docker, local" {
		t.Error(err)
	}
}

// TestStoreSettings: what this version can't do is refused by name, never taken for something else.
func TestStoreSettings(t *testing.T) {
	for config, want := range map[string]string{
		"[stores.document]\nimpl = 'm:Mongo'\n":                                                  `stores.document: this version has no class "m:Mongo"`,
		"[stores.object]\nimpl = 'm:S3'\n":                                                       `stores.object: this version has no class "m:S3"`,
		"[stores.object.config]\nroot = '/elsewhere'\n":                                          "set both to one folder",
		"[stores.document.config]\npath = 's'\n[stores.object.config]\nroot = 's'\n":             "",
		"[stores.document.config]\npath = 'env:KEY'\n[stores.object.config]\nroot = 'env:KEY'\n": "",
		"[stores.document.config]\npath = 'env:NO'\n":                                            "the variable is not set",
		"[stores.document.config]\npath = 'secret:KEY'\n[stores.object.config]\nroot = 'value'":  "",
	} {
		a, _ := world(t, map[string]string{".agentenv/config.toml": config})
		_, err := a.Store(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestNothingIsMade: looking makes nothing.
func TestNothingIsMade(t *testing.T) {
	a, home := world(t, nil)
	if _, err := a.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(t.Context(), "hello", false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Engine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if boxes, err := a.Boxes(t.Context()); err != nil || len(boxes) > 0 {
		t.Fatal(boxes, err)
	}
	if left := a.Standing(); len(left) > 0 {
		t.Fatal(left)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}
