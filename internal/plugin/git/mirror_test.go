package git

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Row 114: what a mirror has is installed, synced and resolved without its source, with the same digests, from a folder and over HTTP.
func TestMirror(t *testing.T) {
	t.Parallel()
	a := gittest.Plugin(t, "a", "run.sh", "#!/bin/sh\n", "data/x y/ä", "1")
	a.InWork("tag", "-a", "-m", "v1", "v1")
	a.InWork("push", "-q", "origin", "v1")
	b := gittest.Plugin(t, "b")
	commit := b.InWork("rev-parse", "HEAD")
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: a.URL(), Ref: "v1"}, Want{URL: b.URL(), Ref: commit[:8]})
	dir := filepath.Join(t.TempDir(), "mirror")
	first, err := s.Vendor(t.Context(), dir)
	if err != nil || len(first) != 2 || !first[0].Fresh || first[0].ID != "a" {
		t.Fatalf("%+v, %v", first, err)
	}
	before := folderBytes(t, dir)
	again, err := s.Vendor(t.Context(), dir)
	if err != nil || again[0].Fresh || folderBytes(t, dir) != before {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	lock := lockBytes(t, s)
	for _, r := range []*gittest.Repo{a, b} {
		if err := os.Rename(r.Bare, r.Bare+".gone"); err != nil {
			t.Fatal(err)
		}
	}
	files := http.FileServer(http.Dir(dir))
	served := httptest.NewServer(files)
	defer served.Close()
	for _, at := range []string{dir, served.URL} {
		offline := newStore(t, func(o *Options) { o.Policy.Mirror, o.Now = at, s.o.Now })
		for _, w := range []Want{{URL: a.URL(), Ref: "v1"}, {URL: b.URL(), Ref: commit[:8]}} {
			mustInstall(t, offline, false, w)
		}
		for _, want := range []string{row(t, s, "a").TreeSHA256, row(t, s, "b").TreeSHA256} {
			if err := offline.Check(t.Context(), want); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
		if r := row(t, offline, "a"); r.Fetch != ByMirror || r.ResolvedSHA != row(t, s, "a").ResolvedSHA || r.RequestedRef != "v1" {
			t.Errorf("%s: %+v", at, r)
		}
		// Sync brings back what the lock names, and writes nothing there.
		moved := newStore(t, func(o *Options) { o.Policy.Mirror = at })
		if err := os.WriteFile(moved.Folder().Path(folder.Lock), []byte(lock), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := moved.Sync(t.Context())
		if err != nil || len(all) != 2 || all[0].State != Arrived || all[1].State != Arrived || lockBytes(t, moved) != lock {
			t.Errorf("%s: %+v, %v", at, all, err)
		}
	}
	// What is newer is asked of the mirror, where it has what is installed.
	behind := newStore(t, func(o *Options) { o.Policy.Mirror = served.URL })
	if err := os.WriteFile(behind.Folder().Path(folder.Lock), []byte(strings.ReplaceAll(lock, row(t, s, "a").ResolvedSHA, strings.Repeat("1", 40))), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := behind.Outdated(t.Context()); err != nil || len(all) != 2 || all[0].Err != nil || !all[0].Behind || all[0].Latest != row(t, s, "a").ResolvedSHA || !all[1].Pinned {
		t.Errorf("outdated: %+v, %v", all, err)
	}
	// What it lacks comes from the source, of which there is none.
	offline := newStore(t, func(o *Options) { o.Policy.Mirror = dir })
	if _, err := install(t.Context(), offline, false, Want{URL: a.URL(), Ref: "v2"}); err == nil || strings.Contains(err.Error(), "mirror") {
		t.Errorf("a ref that it lacks: %v", err)
	}
	// The policy counts, mirror or not.
	denied := newStore(t, func(o *Options) { o.Policy.Mirror, o.Policy.Allow = dir, []string{} })
	if _, err := install(t.Context(), denied, false, Want{URL: a.URL(), Ref: "v1"}); err == nil || !strings.Contains(err.Error(), "allows no source") {
		t.Errorf("what isn't allowed: %v", err)
	}
}

// A mirror that lies, or can't be read, installs nothing.
func TestBadMirror(t *testing.T) { //nolint:tparallel // its parts share a store
	t.Parallel()
	a := gittest.Plugin(t, "a")
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: a.URL()})
	made := t.TempDir()
	if _, err := s.Vendor(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	tree := row(t, s, "a").TreeSHA256
	index, err := os.ReadFile(filepath.Join(made, mirrorIndex))
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(filepath.Join(made, tree+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("0", 64)
	for name, c := range map[string]struct{ index, tar, want string }{
		"no index":        {"", string(archive), "no such file"},
		"broken":          {"{", string(archive), "can't be read"},
		"newer":           {strings.Replace(string(index), `"format_version": 1`, `"format_version": 9`, 1), string(archive), "format_version 9"},
		"a path for tree": {strings.ReplaceAll(string(index), tree, "../../etc/passwd"), string(archive), "can't be"},
		"no files":        {string(index), "", "lacks its files"},
		"half a tar":      {string(index), string(archive[:520]), "in the mirror"},
		"another tree":    {strings.ReplaceAll(string(index), tree, other), string(archive), "has other files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{mirrorIndex: c.index, tree + ".tar": c.tar, other + ".tar": c.tar} {
				if text != "" {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			s := newStore(t, func(o *Options) { o.Policy.Mirror = dir })
			if _, err := install(t.Context(), s, false, Want{URL: a.URL()}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if left := staged(t, s); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	for at, ok := range map[string]bool{"/srv/m": true, "https://m.example/x": true, "http://m.example": false, "m": false, "https://u:p@m.example": false, "ftp://m.example": false, "file:///srv": false} {
		if err := CheckMirror(at, false); (err == nil) != ok {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func FuzzParseMirror(f *testing.F) {
	f.Add([]byte(`{"format_version": 1, "sources": {"h/p": {"refs": {"": "` + strings.Repeat("a", 40) + `"}, "commits": {"` + strings.Repeat("a", 40) + `": "` + strings.Repeat("b", 64) + `"}}}}`))
	f.Add([]byte(`{"format_version": 1, "sources": {"h/p": null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMirror(b)
		if err != nil {
			return
		}
		for _, s := range m.Sources {
			for _, tree := range s.Commits {
				if filepath.Base(tree) != tree || len(tree) != 64 {
					t.Errorf("a tree %q", tree)
				}
			}
		}
	})
}

// folderBytes is everything in a folder, as one text.
func folderBytes(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range es {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(e.Name() + "\n" + string(b) + "\n")
	}
	return out.String()
}
