package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Row 65: where somebody put a link in place of a plugin's files, the link goes, and what it leads to stays.
func TestLinkedTree(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "p")
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: r.URL()})
	tree := row(t, s, "p").TreeSHA256
	dir := s.trees.PathOf(tree)
	elsewhere := filepath.Join(t.TempDir(), "precious")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "file"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	replace := func() {
		t.Helper()
		if err := os.Rename(dir, dir+".moved"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, dir); err != nil {
			t.Fatal(err)
		}
	}
	precious := func(what string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(elsewhere, "file")); err != nil || string(b) != "mine" {
			t.Errorf("after %s: %q, %v", what, b, err)
		}
	}
	replace()
	if all, err := s.Verify(t.Context()); err != nil || all[0].State == Present {
		t.Errorf("verify: %+v, %v", all, err)
	}
	all, err := s.Sync(t.Context())
	if err != nil || all[0].Err != nil || s.Check(t.Context(), tree) != nil {
		t.Errorf("sync: %+v, %v", all, err)
	}
	precious("sync")
	if err := os.RemoveAll(dir + ".moved"); err != nil {
		t.Fatal(err)
	}
	replace()
	if err := s.Change(t.Context(), func(_ *folder.Tx, l *Lock) error { l.Drop("p"); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the link is there")
	}
	precious("uninstall")
}

// Row 112: a clock that jumps back, no HOME, a umask that gives nobody anything, and folders with blanks and other letters change nothing.
func TestOddMachine(t *testing.T) {
	t.Parallel()
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	r := gittest.Plugin(t, "p", "bin/run", "#!/bin/sh\n")
	want := row(t, installed(t, r), "p")
	root := filepath.Join(t.TempDir(), "arbeit — größer ☃", "a b")
	if err := os.MkdirAll(filepath.Join(root, folder.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s := newStore(t, func(o *Options) {
		o.Folder, o.Dir = folder.At(root), filepath.Join(root, "zustand ü", "git plugins")
		o.Now = func() time.Time { return now }
		o.Fetch.Home = ""
		o.Fetch.Env = func(name string) (string, bool) {
			if name != "PATH" {
				return "", false
			}
			return os.LookupEnv(name)
		}
	})
	mustInstall(t, s, false, Want{URL: r.URL()})
	if got := row(t, s, "p"); got.TreeSHA256 != want.TreeSHA256 {
		t.Errorf("other files: %+v, want %+v", got, want)
	}
	if got := files(t, s, want.TreeSHA256); !strings.Contains(got, "bin/run*=") {
		t.Errorf("the program lost its mode: %s", got)
	}
	if _, err := s.Outdated(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit := r.Commit("more", "1")
	now = now.Add(-24 * time.Hour) // an answer of the future is not taken for a fresh one
	all, err := s.Outdated(t.Context())
	if err != nil || len(all) != 1 || all[0].Latest != commit || !all[0].Behind {
		t.Errorf("after the jump: %+v, %v", all, err)
	}
	mustInstall(t, s, false, Want{URL: r.URL()})
	if got := row(t, s, "p"); got.ResolvedSHA != commit || got.InstalledAt != Stamp(now) {
		t.Errorf("after the jump: %+v", got)
	}
}

func installed(t *testing.T, r *gittest.Repo) *Store {
	t.Helper()
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: r.URL()})
	return s
}

// Row 115: digests and locks say nothing of the machine. The digest is of paths, modes, sizes and contents alone: this one, worked out from its
// definition elsewhere, is the same wherever the test runs, and so are the lock's bytes.
func TestSameEverywhere(t *testing.T) {
	t.Parallel()
	r := gittest.New(t, "p")
	commit := r.Commit("agentenv.plugin.yaml", "id: p\nname: P\n", "bin/run", "#!/bin/sh\n", "ü/b", "crlf\r\n", "ü/a", "")
	s := newStore(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(1_800_000_000, 1000).UTC() } })
	mustInstall(t, s, false, Want{URL: r.URL()})
	const tree = "2dcd11890fb8a0ec7c907f2889ec2339161bc79789a3a1ebaf39e9f41e38e435"
	got := row(t, s, "p")
	if got.TreeSHA256 != tree {
		t.Errorf("the tree is %s", got.TreeSHA256)
	}
	want := fmt.Sprintf(`{
  "version": 2,
  "plugins": [
    {
      "id": "p",
      "source_url": %q,
      "requested_ref": "",
      "resolved_sha": %q,
      "tree_sha256": %q,
      "fetch": "git",
      "installed_at": "2027-01-15T08:00:00.000001+00:00",
      "by": "cli"
    }
  ]
}
`, r.URL(), commit, tree)
	if lockBytes(t, s) != want {
		t.Errorf("the lock is\n%s\nwant\n%s", lockBytes(t, s), want)
	}
}

// Rows 108, 109: installs, removals, updates and syncs of the same plugins at once end in a lock whose rows are all whole.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	a, b := gittest.Plugin(t, "a"), gittest.Plugin(t, "b")
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: a.URL()}, Want{URL: b.URL()})
	a.Commit("new", "1")
	var wg sync.WaitGroup
	for i := range 4 {
		own := Open(s.o) // as another process has it
		wg.Go(func() {
			if _, err := install(t.Context(), own, false, Want{URL: a.URL()}, Want{URL: b.URL()}); err != nil {
				t.Errorf("install: %v", err)
			}
		})
		wg.Go(func() {
			if err := own.Change(t.Context(), func(_ *folder.Tx, l *Lock) error { l.Drop("b"); return nil }); err != nil {
				t.Errorf("uninstall: %v", err)
			}
			if _, err := own.Prune(t.Context()); err != nil {
				t.Errorf("prune: %v", err)
			}
		})
		if i == 0 {
			wg.Go(func() {
				all, err := own.Sync(t.Context())
				if err != nil {
					t.Errorf("sync: %v", err)
				}
				for _, st := range all {
					if st.Err != nil {
						t.Errorf("sync: %s: %v", st.ID, st.Err)
					}
				}
			})
		}
	}
	wg.Wait()
	l, err := s.Lock(t.Context())
	if err != nil || l.Plugin("a") == nil {
		t.Fatalf("%+v, %v", l, err)
	}
	for _, r := range l.Plugins {
		if err := s.Check(t.Context(), r.TreeSHA256); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
	if left := staged(t, s); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
