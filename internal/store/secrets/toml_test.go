package secrets

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/store"
)

// TestTOML: tables make dotted keys; a file that isn't there yet holds nothing.
func TestTOML(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.toml")
	if _, err := New(Config{File: path}).Secret(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(path, []byte("a = 'x'\n[bundles.desk]\ntoken = 'y'\nlist = ['z']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{File: path}).Secret(t.Context(), "a"); err == nil {
		t.Error("a list is no secret")
	}
	if err := os.WriteFile(path, []byte("a = 'x'\n[bundles.desk]\ntoken = 'y'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Config{File: path})
	for key, want := range map[string]string{"a": "x", "bundles.desk.token": "y"} {
		if got, err := s.Secret(t.Context(), key); got != want || err != nil {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
}
