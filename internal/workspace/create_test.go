package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

func maker(t *testing.T) (*Maker, string) {
	t.Helper()
	dir := t.TempDir()
	return &Maker{
		Registry: NewRegistry(filepath.Join(dir, "state", "workspaces")), Builtins: []string{"delegates"}, Now: time.Now,
		Store: func(f folder.Folder) *git.Store {
			return git.Open(git.Options{
				Dir: filepath.Join(dir, "state", "git_plugins"), Folder: f, Policy: git.Policy{Files: true}, Builtins: []git.Builtin{{ID: "delegates"}}, Version: "1.0.0", Peer: "0.145.0",
				Fetch: git.FetchOptions{Home: dir, Env: os.LookupEnv},
			})
		},
	}, dir
}

// left are the names in a folder, hidden ones too.
func left(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Row 96: a failure at any step leaves no folder, and the name is free.
func TestRow96NothingIsLeft(t *testing.T) { //nolint:tparallel // its parts share a folder
	t.Parallel()
	m, dir := maker(t)
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		order Order
	}{
		"source":  {Order{Bundle: "file://" + dir + "/nosuch"}},
		"option":  {Order{Bundle: "--help"}},
		"from":    {Order{From: dir}},
		"parent":  {Order{Root: filepath.Join(dir, "no", "parent")}},
		"context": {Order{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.order
			o.Name = "desk"
			if o.Root == "" {
				o.Root = filepath.Join(dir, "desk")
			}
			o.Answer = func(context.Context, *pack.Pack, pack.Disclosure) (Answers, error) { return Answers{}, boom }
			ctx, cancel := context.WithCancelCause(t.Context())
			if name == "context" {
				cancel(boom)
			}
			if _, err := m.Create(ctx, o); err == nil {
				t.Fatal("a workspace was made")
			}
			cancel(nil)
			if got := left(t, dir); got != "state" {
				t.Errorf("left: %s", got)
			}
			if all, err := m.Registry.List(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("listed: %v, %v", all, err)
			}
		})
	}
	if _, err := m.Create(t.Context(), Order{Name: "desk", Root: filepath.Join(dir, "desk")}); err != nil {
		t.Error(err)
	}
}

// TestKilledCreation: what a creation that was killed left is found and ended, on either side of its one rename.
func TestKilledCreation(t *testing.T) {
	t.Parallel()
	m, dir := maker(t)
	root := filepath.Join(dir, "desk")
	o := Order{Name: "desk", Root: root}
	if err := atomicfile.MkdirAll(m.Registry.dir); err != nil {
		t.Fatal(err)
	}
	e, err := m.reserve(o)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := atomicfile.NewLock(t.Context(), m.Registry.lock("desk"))
	if err != nil {
		t.Fatal(err)
	}
	// While its process lives it is nobody's business.
	if all, err := m.Registry.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed while it is made: %v, %v", all, err)
	}
	if _, err := os.Stat(e.Staging); err != nil {
		t.Error("it was removed under its maker's hands")
	}
	if _, err := m.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), "by another command") {
		t.Errorf("made twice at once: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if all, err := m.Registry.List(t.Context()); err != nil || len(all) > 0 || left(t, dir) != "state" {
		t.Errorf("a killed creation: %v, %v, left %s", all, err, left(t, dir))
	}
	// Killed behind the rename: the workspace is whole.
	if e, err = m.reserve(o); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.fill(t.Context(), o, folder.At(e.Staging)); err != nil {
		t.Fatal(err)
	}
	if _, err := place(e.Staging, root); err != nil {
		t.Fatal(err)
	}
	all, err := m.Registry.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "desk" {
		t.Fatalf("%v, %v", all, err)
	}
	if got := left(t, dir); got != "desk state" {
		t.Errorf("left: %s", got)
	}
	if _, err := m.Create(t.Context(), o); err == nil {
		t.Error("its name was given away")
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"a": true, "A-b_9": true, "": false, "-x": false, "a b": false, "../x": false, "host": false, "HOST": false, "a\n": false, strings.Repeat("x", 65): false} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Row 95: when what follows the seeding fails, lock, settings and secrets are as they were, byte for byte.
func TestRow95Undo(t *testing.T) {
	t.Parallel()
	m, dir := maker(t)
	w, err := m.Create(t.Context(), Order{Name: "desk", Root: filepath.Join(dir, "desk")})
	if err != nil {
		t.Fatal(err)
	}
	f := w.Folder()
	s := seeding(t, desk+"secrets: [{key: token}]\n")
	s.Answers.Secrets = map[string]string{"token": "v"}
	before, err := f.Read(folder.Config)
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("the reload failed")
	for _, fail := range []error{boom, nil} {
		err := m.Store(f).Change(t.Context(), func(tx *folder.Tx, l *git.Lock) error {
			out, err := Install(tx, l, s)
			if err != nil {
				return err
			}
			l.PutBundle(git.BundleRow{ID: "desk", Seeded: out.Rows})
			return fail
		})
		if !errors.Is(err, fail) {
			t.Fatal(err)
		}
		config, err := f.Read(folder.Config)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := f.Read(folder.Lock)
		if err != nil {
			t.Fatal(err)
		}
		secrets, err := f.Read(folder.Secrets)
		if err != nil {
			t.Fatal(err)
		}
		if undone := string(config) == string(before) && lock == nil && secrets == nil; undone != (fail != nil) {
			t.Errorf("after %v: config\n%s\nlock %s, secrets %q", fail, config, lock, secrets)
		}
	}
	if fi, err := os.Stat(f.Path(folder.Secrets)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("secrets: %v, %v", fi, err)
	}
}

// Row 100: each required input without an answer is told by its label; a boolean holds nobody up.
func TestRow100Gate(t *testing.T) {
	t.Parallel()
	p := parsePack(t, `
id: d
plugins: []
config_inputs:
  - {key: a.one, label: One, required: true}
  - {key: a.two, label: Two, required: true, default: x}
  - {key: a.three, label: Three, required: true, type: boolean}
  - {key: a.four, label: Four, type: path, project: true}
  - {key: a.five, label: Five, type: delegate}
`)
	a, l := ReadAnswers(p, map[string]string{"a.four": "rel", "a.five": "ghost", "a.one": "  ", "a.tow": "y"})
	l.Add(Gate(p, a, []string{"real"})...)
	got := l.Err().Error()
	for _, want := range []string{"One: is required", "Four: 'rel' is a relative path", "Five: 'ghost' is no delegate; choose one of real", "'a.tow' is no input of the bundle d; did you mean a.two?"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if len(l) != 4 {
		t.Errorf("%v", l)
	}
}

// TestProject: a folder that an answer names is registered once, with its GitHub name where it has one.
func TestProject(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "site")
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@github.com:o/site.git\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := seeding(t, "id: d\nplugins: [{id: board, url: \"https://example.org/o/board\"}]\nconfig_inputs: [{key: board.repo, label: R, type: path, project: true}]\n")
	s.Answers.Values["board.repo"] = dir
	out := apply(t, s, Files{Config: []byte("[[projects]]\nname = \"site\"\npath = \"/elsewhere\"\n")})
	for _, want := range []string{`name = "site-2"`, `github = "o/site"`, `write = true`, `path = "/elsewhere"`} {
		if !strings.Contains(string(out.Config), want) {
			t.Errorf("no %s in\n%s", want, out.Config)
		}
	}
	again := apply(t, s, out.Files)
	if string(again.Config) != string(out.Config) {
		t.Errorf("registered twice:\n%s", again.Config)
	}
}
