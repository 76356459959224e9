//go:build integration && linux

package git

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Rows 48, 52: where the disk is full, or the workspace read-only, what is installed stays as it is, usable, and nothing is left.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("mounting needs root")
		}
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=700k"); err != nil {
		t.Skipf("no mounts here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	r := gittest.Plugin(t, "p")
	s := newStore(t, func(o *Options) { o.Dir = filepath.Join(dir, "git_plugins") })
	mustInstall(t, s, false, Want{URL: r.URL()})
	before, old := lockBytes(t, s), row(t, s, "p")
	r.Commit("big", strings.Repeat("0123456789abcdef", 60_000))
	if _, err := install(t.Context(), s, false, Want{URL: r.URL()}); err == nil {
		t.Fatal("it was installed on a full disk")
	}
	if lockBytes(t, s) != before || s.Check(t.Context(), old.TreeSHA256) != nil || len(staged(t, s)) > 0 {
		t.Errorf("after a full disk: lock %s, left %v", lockBytes(t, s), staged(t, s))
	}
	// The workspace on a file system that can't be written to.
	w := s.Folder().Path("")
	if err := syscall.Mount(w, w, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(w, 0); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", w, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(t.Context()); err == nil || !strings.Contains(err.Error(), "can't be changed") {
		t.Errorf("a read-only workspace: %v", err)
	}
	if _, err := s.Verify(t.Context()); err != nil {
		t.Errorf("a read-only workspace can't be verified: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w, folder.Lock)); err != nil {
		t.Error(err)
	}
}
