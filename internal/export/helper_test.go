package export

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// files are a folder's files by path. Scripts, whose text begins with "#!", are executable; a text "-> x" makes a link to x.
type files map[string]string

func (f files) with(more files) files {
	out := maps.Clone(f)
	maps.Copy(out, more)
	return out
}

func (f files) write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range f {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, link := strings.CutPrefix(text, "-> "); link {
			if err := os.Symlink(target, at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := f.mode(name)
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
}

func (f files) mode(name string) fs.FileMode {
	if strings.HasPrefix(f[name], "#!") {
		return 0o755
	}
	return 0o644
}

// read is what lies below a folder, but for the papers.
func read(t *testing.T, dir string) files {
	t.Helper()
	out := files{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "README.md" || name == "provenance.json" {
			return err
		}
		if target, err := os.Readlink(path); err == nil {
			out[name] = "-> " + target
			return nil
		}
		b, err := os.ReadFile(path)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rig is a home folder and a store.
type rig struct {
	t     *testing.T
	home  string
	store *mem.Store
	o     Options
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, home: t.TempDir(), store: mem.New(mem.Options{})}
	r.o = Options{
		Bundle: bundle.Options{Kinds: step.Kinds()}, Store: r.store, Program: "agent-env test", Now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Home: r.home,
	}
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.home, name) }

// bundle writes a bundle below the home folder and registers all of it.
func (r *rig) bundle(name string, f files) {
	r.t.Helper()
	f.write(r.t, r.path(name))
	r.register(name)
}

func (r *rig) register(name string) ledger.Result {
	r.t.Helper()
	src, err := bundle.OpenFolder(r.path(name), r.home)
	if err != nil {
		r.t.Fatal(err)
	}
	defer src.Close()
	b, l := bundle.Parse(src, r.o.Bundle)
	if err := l.Err(); err != nil {
		r.t.Fatal(err)
	}
	if err := b.Resolve().Err(); err != nil {
		r.t.Fatal(err)
	}
	p, l, err := b.Plan(r.t.Context(), ledger.View(r.store), bundle.Selection{All: true})
	if err != nil || l.HasErrors() {
		r.t.Fatal(err, l.Err())
	}
	res, err := ledger.Write(r.t.Context(), r.store, p, ledger.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// doc stores a document beside those of bundles.
func (r *rig) doc(d store.Doc) {
	r.t.Helper()
	s, err := r.store.Begin(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = s.Discard() }()
	latest, err := r.store.Latest(r.t.Context(), d.Kind, []string{d.ID})
	if err != nil {
		r.t.Fatal(err)
	}
	d.Version = latest[d.ID].Version + 1
	s.Doc(d, store.LatestIs(latest[d.ID].Version))
	if err := s.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// put stores bytes.
func (r *rig) put(text string) ref.Digest {
	r.t.Helper()
	s, err := r.store.Begin(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = s.Discard() }()
	d, _, err := s.Put(strings.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// task stores a task by its steps.
func (r *rig) task(id, steps string) {
	r.t.Helper()
	r.doc(store.Doc{Kind: store.Task, ID: id, Type: "task", Body: []byte(`{"steps":` + steps + `}`)})
}

func (r *rig) init(name string, from From) (Report, error) {
	r.t.Helper()
	return Init(r.t.Context(), r.path(name), from, r.o)
}

func fromTask(id string) From { return From{Kind: ref.Task, ID: id} }

// must is init that succeeds.
func (r *rig) must(name string, from From) Report {
	r.t.Helper()
	rep, err := r.init(name, from)
	if err != nil {
		r.t.Fatal(err)
	}
	r.clean()
	return rep
}

// refused is the error of an init that must fail, and that leaves nothing.
func (r *rig) refused(from From) string {
	r.t.Helper()
	before := r.list()
	_, err := r.init("refused", from)
	if err == nil {
		r.t.Fatal("written, though it can't be")
	}
	if now := r.list(); !slices.Equal(before, now) {
		r.t.Errorf("it leaves %v", now)
	}
	return err.Error()
}

func (r *rig) list() []string {
	r.t.Helper()
	entries, err := os.ReadDir(r.home)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// clean fails when something lies beside the bundles.
func (r *rig) clean() {
	r.t.Helper()
	for _, name := range r.list() {
		if strings.HasPrefix(name, ".") {
			r.t.Errorf("%s is left", name)
		}
	}
}

// docs are the bodies of all documents below an id root, without what differs between two writes, by kind and id. The root is spelled "ROOT".
func (r *rig) docs(root string) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, k := range []store.Kind{store.Artifact, store.Env, store.Agent, store.Task, store.Eval} {
		q := store.Query{Kind: k, Prefix: root + "/", Limit: 1000}
		page, err := r.store.List(r.t.Context(), q)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, d := range page.Docs {
			out[string(k)+" "+strings.TrimPrefix(d.ID, root+"/")] = withoutTime(strings.ReplaceAll(string(d.Body), root+"/", "ROOT/"))
		}
	}
	return out
}

func withoutTime(body string) string {
	before, after, ok := strings.Cut(body, `"created_at_utc":"`)
	if !ok {
		return body
	}
	_, after, _ = strings.Cut(after, `"`)
	return before + after
}

// source is a folder below the home as an installed bundle.
func (r *rig) source(dir, name, idRoot string) bundle.Source {
	r.t.Helper()
	src, err := bundle.OpenFolder(r.path(dir), r.home)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = src.Close() })
	src.Name, src.Root, src.IDRoot = name, "dist/"+name, idRoot
	return src
}
