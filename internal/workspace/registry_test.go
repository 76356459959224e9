package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeAfterRemoval: a workspace that was removed since it was looked up is not served.
func TestServeAfterRemoval(t *testing.T) {
	t.Parallel()
	m, dir := maker(t)
	made, err := m.Create(t.Context(), Order{Name: "one", Root: filepath.Join(dir, "one")})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := m.Registry.Serve(made.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Registry.Remove(t.Context(), "one", true); err == nil || !strings.Contains(err.Error(), "is served by another process") {
		t.Errorf("removed while it is served: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := m.Registry.Remove(t.Context(), "one", true); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Registry.Serve(made.Workspace); err == nil || !strings.Contains(err.Error(), "is there no more") {
		t.Errorf("served after its removal: %v", err)
	}
}

// TestRemoveWithOthers: a folder doesn't go with all that is in it while other workspaces are in it, by whatever path they were made.
func TestRemoveWithOthers(t *testing.T) {
	t.Parallel()
	m, dir := maker(t)
	outer := filepath.Join(dir, "outer")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(outer, link); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Order{{Name: "outer", Root: outer}, {Name: "inner", Root: filepath.Join(link, "inner")}, {Name: "outer2", Root: filepath.Join(dir, "outer2")}} {
		if _, err := m.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Registry.Remove(t.Context(), "outer", true); err == nil || !strings.HasSuffix(err.Error(), "remove those first: inner") {
		t.Errorf("removed with another in it: %v", err)
	}
	if _, err := At(outer); err != nil {
		t.Errorf("something of it is gone: %v", err)
	}
	for _, name := range []string{"inner", "outer"} {
		if err := m.Registry.Remove(t.Context(), name, true); err != nil {
			t.Error(err)
		}
	}
	if got := left(t, dir); got != "link outer2 state" {
		t.Errorf("left: %s", got)
	}
}
