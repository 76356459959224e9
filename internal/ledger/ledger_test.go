package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

const boxStep = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}`

// load is a task that loads artifacts into a sandbox.
func load(names ...string) string {
	var out strings.Builder
	out.WriteString("[" + boxStep)
	for i, n := range names {
		out.WriteString(`,{"id":"l` + string(rune('0'+i)) + `","type":"load_artifact","sandbox_name":"box","artifact_id":"` + n + `"}`)
	}
	return out.String() + "]"
}

// memFS makes a file system of texts.
func memFS(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return out
}

// planFS plans a bundle of a file system whose ids begin with root.
func planFS(t *testing.T, fsys fs.FS, root string, st store.Docs) *bundle.Plan {
	t.Helper()
	b, l := bundle.Parse(bundle.Source{FS: fsys, Name: "b", Root: "/b", IDRoot: root}, bundle.Options{Kinds: step.Kinds()})
	if err := l.Err(); err != nil {
		t.Fatalf("parse: %v", err)
	}
	if err := b.Resolve().Err(); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	p, l, err := b.Plan(t.Context(), View(st), bundle.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		t.Fatalf("plan: %v", err)
	}
	return p
}

func bring(t *testing.T, st store.Store, fsys fs.FS, root string) string {
	t.Helper()
	p := planFS(t, fsys, root, st)
	dry, err := Write(t.Context(), st, p, Options{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Write(t.Context(), st, p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := lines(dry), lines(r); a != b {
		t.Errorf("a dry run says\n%s\nand the write\n%s", a, b)
	}
	return lines(r)
}

func lines(r Result) string {
	out := make([]string, len(r.Lines))
	for i, l := range r.Lines {
		out[i] = l.String()
	}
	return strings.Join(out, "\n")
}

// put stores a document by other means than a bundle.
func put(t *testing.T, st store.Store, d store.Doc) {
	t.Helper()
	s, err := st.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Doc(d, store.Cond{Any: true})
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestReasons(t *testing.T) {
	const root = "@local/~/b"
	base := map[string]string{
		"tasks/t.json":              load("w", "u"),
		"artifacts/f/a.txt":         "hello",
		"artifacts/e/artifact.toml": "type = \"environment\"\nenvironment_name = \"mail\"\nfile = \"f\"\n",
		"artifacts/w/artifact.toml": "type = \"environment_universe\"\nenvironment_artifacts = [\"e\"]\n",
		"artifacts/w/crm/c.json":    "{}",
		"artifacts/u/a":             "1",
		"artifacts/u/b":             "2",
	}
	const (
		f1, e1, u1, w1, t1 = "artifacts/f: v1, unchanged", "artifacts/e: v1, unchanged", "artifacts/u: v1, unchanged", "artifacts/w: v1, unchanged", "tasks/t.json: v1, unchanged"
	)
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, st store.Store, f map[string]string)
		want   []string
	}{
		{"nothing", func(*testing.T, store.Store, map[string]string) {}, []string{f1, e1, u1, w1, t1}},
		{"a file", func(_ *testing.T, _ store.Store, f map[string]string) { f["artifacts/f/a.txt"] = "bye" }, []string{
			"artifacts/f: v2 (files changed: a.txt)",
			"artifacts/e: v2 (artifact @local/~/b/f is written anew (v1 → v2))",
			u1,
			"artifacts/w: v2 (artifact @local/~/b/e is written anew (v1 → v2))",
			t1,
		}},
		{"one of two files goes", func(_ *testing.T, _ store.Store, f map[string]string) { delete(f, "artifacts/u/b") }, []string{
			f1, e1, "artifacts/u: v2 (type changed: file_artifact_universe → file; files removed: b)", w1, t1,
		}},
		{"many files come", func(_ *testing.T, _ store.Store, f map[string]string) {
			for n := range strings.SplitSeq("c d e f g h i", " ") {
				f["artifacts/u/"+n] = n
			}
			f["artifacts/u/a"] = "new"
		}, []string{f1, e1, "artifacts/u: v2 (files added: c, d, e, f, g and 2 more; files changed: a)", w1, t1}},
		{"a config", func(_ *testing.T, _ store.Store, f map[string]string) {
			f["artifacts/f/artifact.toml"] = "description = \"x\"\n"
		}, []string{
			"artifacts/f: v2 (config changed)",
			"artifacts/e: v2 (artifact @local/~/b/f is written anew (v1 → v2))", u1,
			"artifacts/w: v2 (artifact @local/~/b/e is written anew (v1 → v2))", t1,
		}},
		{"comments and order", func(_ *testing.T, _ store.Store, f map[string]string) {
			f["artifacts/e/artifact.toml"] = "# data\nfile = 'f'\nenvironment_name = \"mail\"\ntype = \"environment\"\n"
			f["tasks/t.json"] = strings.ReplaceAll(f["tasks/t.json"], `"id":"box","type":"deploy_sandbox"`, ` "type" : "deploy_sandbox", "id": "box"`)
		}, []string{f1, e1, u1, w1, t1}},
		{"a task", func(_ *testing.T, _ store.Store, f map[string]string) { f["tasks/t.json"] = load("u", "w") }, []string{
			f1, e1, u1, w1, "tasks/t.json: v2 (config changed)",
		}},
		{"what is needed", func(_ *testing.T, _ store.Store, f map[string]string) {
			f["artifacts/g/a.txt"] = "hello"
			f["artifacts/e/artifact.toml"] = strings.ReplaceAll(f["artifacts/e/artifact.toml"], `"f"`, `"g"`)
		}, []string{
			"artifacts/g: v1 (new)",
			"artifacts/e: v2 (config changed; now needs artifact @local/~/b/g; no longer needs artifact @local/~/b/f)", u1,
			"artifacts/w: v2 (artifact @local/~/b/e is written anew (v1 → v2))", t1,
		}},
		{"another writer", func(t *testing.T, st store.Store, _ map[string]string) {
			t.Helper()
			put(t, st, store.Doc{Kind: store.Artifact, ID: root + "/u", Version: 2, Type: "file", Body: []byte("{}")})
		}, []string{f1, e1, "artifacts/u: v3 (v2 in the store wasn't written by this bundle)", w1, t1}},
		{"the version is gone", func(t *testing.T, st store.Store, _ map[string]string) {
			t.Helper()
			s, err := st.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.Delete(store.Artifact, root+"/u", 0)
			if err := s.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, []string{f1, e1, "artifacts/u: v1 (v1 is no longer in the store)", w1, t1}},
		{"a row that contradicts itself", func(t *testing.T, st store.Store, _ map[string]string) {
			t.Helper()
			d, err := st.Get(t.Context(), store.Ledger, "artifact "+root+"/u", 0)
			if err != nil {
				t.Fatal(err)
			}
			var r map[string]any
			if err := json.Unmarshal(d.Body, &r); err != nil {
				t.Fatal(err)
			}
			r["digest"] = "sha256:" + strings.Repeat("0", 64)
			d.Body, _ = json.Marshal(r)
			s, err := st.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.Delete(store.Ledger, d.ID, 0)
			s.Doc(d, store.Cond{Any: true})
			if err := s.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, []string{f1, e1, "artifacts/u: v2 (the ledger is unsure of it)", w1, t1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := mem.New(mem.Options{})
			files := map[string]string{}
			maps.Copy(files, base)
			first := bring(t, st, memFS(files), root)
			if want := "artifacts/f: v1 (new)\nartifacts/e: v1 (new)\nartifacts/u: v1 (new)\nartifacts/w: v1 (new)\ntasks/t.json: v1 (new)"; first != want {
				t.Fatalf("first write\n%s", first)
			}
			tc.change(t, st, files)
			if got, want := bring(t, st, memFS(files), root), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			again := bring(t, st, memFS(files), root)
			if strings.Count(again, "unchanged") != strings.Count(again, "\n")+1 {
				t.Errorf("the write after that isn't idle:\n%s", again)
			}
		})
	}
}

func TestRevertIsANewVersion(t *testing.T) {
	st := mem.New(mem.Options{})
	files := map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "1"}
	bring(t, st, memFS(files), "@local/b")
	files["artifacts/f/a"] = "2"
	bring(t, st, memFS(files), "@local/b")
	files["artifacts/f/a"] = "1"
	if got := bring(t, st, memFS(files), "@local/b"); got != "artifacts/f: v3 (files changed: a)\ntasks/t.json: v1, unchanged" {
		t.Error(got)
	}
}

func TestTwoBundlesOneID(t *testing.T) {
	st := mem.New(mem.Options{})
	files := map[string]string{"tasks/t.json": load("@local/shared/f"), "artifacts/f/a": "1", "artifacts/f/artifact.toml": "id = \"@local/shared/f\"\n"}
	bring(t, st, memFS(files), "@local/a")
	if got := bring(t, st, memFS(files), "@local/b"); got != "artifacts/f: v2 (last written by the bundle @local/a)\ntasks/t.json: v1 (new)" {
		t.Error(got)
	}
	if got := bring(t, st, memFS(files), "@local/a"); got != "artifacts/f: v3 (last written by the bundle @local/b)\ntasks/t.json: v1, unchanged" {
		t.Error(got)
	}
}

func TestStoreRefs(t *testing.T) {
	st := mem.New(mem.Options{})
	stored := func(v int) {
		put(t, st, store.Doc{Kind: store.Artifact, ID: "@local/x/rows", Version: v, Type: "file", Body: []byte("{}")})
	}
	stored(1)
	stored(2)
	files := map[string]string{
		"tasks/t.json":                     load("floating", "pinned"),
		"artifacts/floating/artifact.toml": "type = \"environment\"\nenvironment_name = \"a\"\nfile = \"@local/x/rows\"\n",
		"artifacts/pinned/artifact.toml":   "type = \"environment\"\nenvironment_name = \"b\"\nfile = { artifact = \"@local/x/rows\", version = 1 }\n",
	}
	bring(t, st, memFS(files), "@local/b")
	stored(3)
	want := "artifacts/floating: v2 (artifact @local/x/rows has a new version in the store (v2 → v3))\nartifacts/pinned: v1, unchanged\ntasks/t.json: v1, unchanged"
	if got := bring(t, st, memFS(files), "@local/b"); got != want {
		t.Error(got)
	}
	for id, want := range map[string]float64{"@local/b/floating": 3, "@local/b/pinned": 1} {
		got := body(t, st, store.Artifact, id)["file_artifact_ref"].(map[string]any)
		if got["id"] != "@local/x/rows" || got["version"] != want {
			t.Errorf("%s points to %v", id, got)
		}
	}
}

func TestModesOfImagesCount(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{
		"tasks/t.json":    `[{"id":"r","type":"reset_env","env_id":"k"},` + strings.TrimPrefix(load("f"), "["),
		"envs/k/env.toml": "environment_name = \"k\"\n", "envs/k/Dockerfile": "FROM scratch\n", "envs/k/server": "x", "artifacts/f/run": "x",
	})
	bring(t, st, fsys, "@local/b")
	fsys["envs/k/server"].Mode = 0o755
	fsys["artifacts/f/run"].Mode = 0o755
	want := "envs/k (Dockerfile image): v2 (files changed: server)\nenvs/k: v2 (artifact @local/b/k__env_image is written anew (v1 → v2))\n" +
		"artifacts/f: v1, unchanged\ntasks/t.json: v1, unchanged"
	if got := bring(t, st, fsys, "@local/b"); got != want {
		t.Error(got)
	}
}

// body is the latest document of an id.
func body(t *testing.T, st store.Store, k store.Kind, id string) map[string]any {
	t.Helper()
	d, err := st.Get(t.Context(), k, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(d.Body, &m); err != nil {
		t.Fatal(err)
	}
	if m["id"] != id || m["version"] != float64(d.Version) || m["type"] != d.Type || m["created_at_utc"] == "" {
		t.Errorf("%s: the document says %v", id, m)
	}
	return m
}

// readOnly is a store that can't be written.
type readOnly struct{ store.Store }

func (readOnly) Begin(context.Context) (store.Stage, error) {
	return nil, errors.New("not to be written")
}

func TestDryRunAndIdleRunWriteNothing(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "1"})
	if r, err := Write(t.Context(), readOnly{st}, planFS(t, fsys, "@local/b", st), Options{DryRun: true}); err != nil || r.Written() != 2 {
		t.Errorf("dry run: %v, %v", r.Lines, err)
	}
	bring(t, st, fsys, "@local/b")
	p := planFS(t, fsys, "@local/b", st)
	r, err := Write(t.Context(), readOnly{st}, p, Options{})
	if err != nil || r.Written() != 0 {
		t.Errorf("idle run: %v, %v", r.Lines, err)
	}
	for _, w := range p.Writes {
		if r.Versions[w] != 1 {
			t.Errorf("%s has version %d", w.Label, r.Versions[w])
		}
	}
}

// racing is a store in which another writer is faster, some times.
type racing struct {
	store.Store
	race func()
}

type racingStage struct {
	store.Stage
	race func()
}

func (r racing) Begin(ctx context.Context) (store.Stage, error) {
	s, err := r.Store.Begin(ctx)
	return racingStage{s, r.race}, err
}

func (s racingStage) Commit(ctx context.Context) error {
	s.race()
	return s.Stage.Commit(ctx)
}

func TestLostRace(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "1"})
	p := planFS(t, fsys, "@local/b", st)
	waited := 0
	r, err := Write(t.Context(), racing{st, func() { bring(t, st, fsys, "@local/b") }}, p, Options{Waiting: func() { waited++ }})
	if err != nil || lines(r) != "artifacts/f: v1, unchanged\ntasks/t.json: v1, unchanged" || waited != 1 {
		t.Errorf("%q, %v, told %d times", lines(r), err, waited)
	}
}

func TestRaceWithoutEnd(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "1"})
	n := 0
	_, err := Write(t.Context(), racing{st, func() {
		n++
		put(t, st, store.Doc{Kind: store.Artifact, ID: "@local/b/f", Version: n, Type: "file", Body: []byte("{}")})
	}}, planFS(t, fsys, "@local/b", st), Options{})
	if !errors.Is(err, store.ErrConflict) || n != attempts {
		t.Errorf("%v after %d races", err, n)
	}
}

func TestTwelveAtOnce(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{"tasks/t.json": load("f", "u"), "artifacts/f/a": "1", "artifacts/u/a": "1", "artifacts/u/b": "1"})
	p := planFS(t, fsys, "@local/b", st)
	var wg sync.WaitGroup
	var writers atomic.Int32
	for range 12 {
		wg.Go(func() {
			r, err := Write(t.Context(), st, p, Options{})
			if err != nil {
				t.Error(err)
			}
			if r.Written() > 0 {
				writers.Add(1)
			}
			for _, l := range r.Lines {
				if l.Version != 1 {
					t.Errorf("%v", l)
				}
			}
		})
	}
	wg.Wait()
	if writers.Load() != 1 {
		t.Errorf("%d of 12 wrote", writers.Load())
	}
}

// restless is a file system with a file that is different each time it is read, until it has been read often enough.
type restless struct {
	fs.FS
	name  string
	reads *int
	calm  int
}

func (r restless) Open(name string) (fs.File, error) {
	if name != r.name {
		return r.FS.Open(name)
	}
	*r.reads++
	text := strings.Repeat("x", min(*r.reads, r.calm))
	return fstest.MapFS{name: {Data: []byte(text), Mode: 0o644}}.Open(name)
}

func TestFileThatChangesDuringTheWrite(t *testing.T) {
	st := mem.New(mem.Options{})
	fsys := memFS(map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "start"})
	bring(t, st, fsys, "@local/b")

	reads := 0
	moving := restless{fsys, "artifacts/f/a", &reads, 6}
	r, err := Write(t.Context(), st, planFS(t, moving, "@local/b", st), Options{})
	if err != nil || r.Lines[0].Version != 2 {
		t.Fatalf("%v, %v", r.Lines, err)
	}
	want := ref.DigestOf([]byte("xxxxxx"))
	if got := body(t, st, store.Artifact, "@local/b/f")["digest"]; got != string(want) {
		t.Errorf("stored %v after %d reads", got, reads)
	}

	reads, moving.calm = 0, 1000
	_, err = Write(t.Context(), st, planFS(t, moving, "@local/b", st), Options{})
	if err == nil || !strings.Contains(err.Error(), "artifacts/f/a: changed while it was being written; run again when") {
		t.Errorf("%v", err)
	}
	if d, err := st.Get(t.Context(), store.Artifact, "@local/b/f", 0); err != nil || d.Version != 2 {
		t.Errorf("version %d, %v", d.Version, err)
	}
}

// counting counts what is put.
type counting struct {
	store.Store
	puts *atomic.Int32
}

type countingStage struct {
	store.Stage
	puts *atomic.Int32
}

func (c counting) Begin(ctx context.Context) (store.Stage, error) {
	s, err := c.Store.Begin(ctx)
	return countingStage{s, c.puts}, err
}

func (s countingStage) Put(r io.Reader) (ref.Digest, int64, error) {
	s.puts.Add(1)
	return s.Stage.Put(r)
}

func TestOnlyChangedFilesAreSent(t *testing.T) {
	st := mem.New(mem.Options{})
	files := map[string]string{"tasks/t.json": load("u"), "artifacts/u/a": "1", "artifacts/u/b": "2", "artifacts/u/c": "3"}
	bring(t, st, memFS(files), "@local/b")
	files["artifacts/u/b"] = "changed"
	var puts atomic.Int32
	if _, err := Write(t.Context(), counting{st, &puts}, planFS(t, memFS(files), "@local/b", st), Options{}); err != nil {
		t.Fatal(err)
	}
	if puts.Load() != 1 {
		t.Errorf("%d files sent", puts.Load())
	}
	for path, text := range map[string]string{"a": "1", "b": "changed", "c": "3"} {
		if got := content(t, st, ref.FileID("@local/b/u", path), 2); got != text {
			t.Errorf("%s holds %q", path, got)
		}
	}
}

// content is the bytes of a stored file artifact.
func content(t *testing.T, st store.Store, id string, version int) string {
	t.Helper()
	m := body(t, st, store.Artifact, id)
	if m["version"] != float64(version) {
		t.Errorf("%s has version %v", id, m["version"])
	}
	r, _, err := st.Open(t.Context(), ref.Digest(m["digest"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user whom modes keep out")
	}
	dir := filepath.Join(t.TempDir(), "b")
	if err := os.CopyFS(dir, memFS(map[string]string{"tasks/t.json": load("f"), "artifacts/f/a": "1"})); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "artifacts/f/a"), 0); err != nil {
		t.Fatal(err)
	}
	st := mem.New(mem.Options{})
	p := planOf(t, dir, filepath.Dir(dir), st, bundle.Selection{})
	for _, dry := range []bool{true, false} {
		if _, err := Write(t.Context(), st, p, Options{DryRun: dry}); err == nil || !strings.Contains(err.Error(), "artifacts/f/a") {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
}

// What a plan says of an environment is JSON also where its fields are parts of its toml.
func TestSketchOfNodes(t *testing.T) {
	b, err := Sketch(&bundle.Write{Kind: ref.Env, Type: env.ComputerDriver, Fields: map[string]any{"command": doc.Build([]any{"./drive", "-v"}), "module": doc.Node{}}})
	if err != nil || !strings.Contains(string(b), `"command":["./drive","-v"]`) || !strings.Contains(string(b), `"module":null`) {
		t.Errorf("%s %v", b, err)
	}
}
