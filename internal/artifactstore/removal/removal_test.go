package removal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a store to put documents into.
type shelf struct {
	*testing.T
	store *mem.Store
	*Remover
}

func newShelf(t *testing.T) *shelf {
	s := mem.New(mem.Options{})
	return &shelf{t, s, New(s, s.Runs(), step.Kinds())}
}

// commit stores what f puts on a stage.
func (s *shelf) commit(f func(g store.Stage)) {
	s.Helper()
	g, err := s.store.Begin(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	f(g)
	if err := g.Commit(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// put stores the next version of every document.
func (s *shelf) put(g store.Stage, docs ...artifact.Document) {
	for _, d := range docs {
		g.Doc(store.Doc{Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(time.Now()), Objects: d.Objects}, store.Cond{Any: true})
	}
}

func (s *shelf) next(id string) artifact.Pin {
	d, err := s.store.Get(s.Context(), store.Artifact, id, 0)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Error(err)
	}
	return artifact.Pin{ID: id, Version: d.Version + 1}
}

func (s *shelf) bytes(g store.Stage, path, text string) artifact.Bytes {
	d, n, err := g.Put(strings.NewReader(text))
	if err != nil {
		s.Error(err)
	}
	return artifact.Bytes{Path: path, Digest: d, Size: n, Mode: 0o644}
}

func (s *shelf) file(id, text string) {
	s.Helper()
	s.commit(func(g store.Stage) { s.put(g, artifact.NewFile(s.next(id), s.bytes(g, "f", text), "")) })
}

func (s *shelf) universe(id string, files ...string) {
	s.Helper()
	s.commit(func(g store.Stage) {
		var bs []artifact.Bytes
		for _, f := range files {
			bs = append(bs, s.bytes(g, f, id+f))
		}
		s.put(g, artifact.NewFileUniverse(s.next(id), bs, s.next)...)
	})
}

func (s *shelf) skill(id string) {
	s.Helper()
	s.commit(func(g store.Stage) {
		s.put(g, artifact.NewSkill(s.next(id), artifact.SkillFront{Name: "s"}, []artifact.Bytes{s.bytes(g, "SKILL.md", id)}, s.next)...)
	})
}

// doc stores a document of any kind.
func (s *shelf) doc(k store.Kind, id string, version int, typ, body string) {
	s.Helper()
	s.commit(func(g store.Stage) {
		g.Doc(store.Doc{Kind: k, ID: id, Version: version, Type: typ, Body: []byte(body)}, store.Cond{Any: true})
	})
}

// left are the artifacts that are there: "a v1".
func (s *shelf) left() []string {
	s.Helper()
	p, err := s.store.List(s.Context(), store.Query{Kind: store.Artifact, AllVersions: true, Limit: 10_000})
	if err != nil {
		s.Fatal(err)
	}
	out := []string{}
	for _, d := range p.Docs {
		out = append(out, name(d.ID, d.Version))
	}
	slices.Sort(out)
	return out
}

func names(vs []Version) string {
	var out []string
	for _, v := range vs {
		out = append(out, v.String())
	}
	return strings.Join(out, " ")
}

func kept(ks []Kept) string {
	var out []string
	for _, k := range ks {
		for _, r := range k.Reasons {
			out = append(out, k.String()+": "+r.String())
		}
	}
	return strings.Join(out, "\n")
}

const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}`

func steps(more ...string) string {
	return `{"steps":[` + strings.Join(append([]string{box}, more...), ",") + `]}`
}

// Each case stores f in two versions, and something that may use it; then f, or one version of it, is deleted.
func TestWhatUsesAnArtifact(t *testing.T) {
	const f = "@local/f"
	pin := func(v int) artifact.Pin { return artifact.Pin{ID: f, Version: v} }
	load := func(fields string) string {
		return steps(`{"id":"l","type":"load_artifact","sandbox_name":"box",` + fields + `}`)
	}
	task := func(body string) func(*shelf) {
		return func(s *shelf) { s.doc(store.Task, "t", 1, "task", body) }
	}
	put := func(docs ...artifact.Document) func(*shelf) {
		return func(s *shelf) { s.commit(func(g store.Stage) { s.put(g, docs...) }) }
	}
	row := func(s *shelf, of, inputs string) {
		s.doc(store.Ledger, of, 1, "x", `{"inputs":`+inputs+`}`)
	}
	run := func(s *shelf, status string) {
		log := s.store.Runs()
		s.doc(store.Task, "t", 1, "task", load(`"artifact_id":"@local/f"`))
		if err := log.Create(s.Context(), runlog.Meta{ID: "t-run", Task: "t", TaskVersion: 1}); err != nil {
			s.Fatal(err)
		}
		if status == "queued" {
			return
		}
		o, err := log.Claim(s.Context(), "t-run")
		if err != nil {
			s.Fatal(err)
		}
		start, _ := json.Marshal(runlog.RunStart{})
		if err := o.Append(s.Context(), runlog.Event{Kind: runlog.RunStarted, Data: start}); err != nil {
			s.Fatal(err)
		}
		if status == "ended" {
			end, _ := json.Marshal(runlog.RunEnd{Status: runlog.Passed})
			if err := o.Append(s.Context(), runlog.Event{Kind: runlog.RunEnded, Data: end}); err != nil {
				s.Fatal(err)
			}
			if err := o.Release(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
	}
	const latest = "@local/f v2: can't be deleted: task t v1 uses the latest version"
	for _, tc := range []struct {
		name  string
		user  func(*shelf)
		one   string // why version 1 stays; "" when it goes
		two   string // why version 2 stays
		whole string // why both stay; "" when one and two say so
	}{
		{"nothing", func(*shelf) {}, "", "", ""},
		{"task with version", task(load(`"artifact_id":"@local/f","artifact_version":1`)), "@local/f v1: can't be deleted: task t v1 uses version 1", "", ""},
		{"task without version", task(load(`"artifact_id":"@local/f"`)), "", latest, ""},
		{"task with null for a version", task(load(`"artifact_id":"@local/f","artifact_version":null`)), "", latest, ""},
		{"task with a list", task(load(`"artifacts":[{"id":"g"},{"id":"@local/f","version":1}]`)), "@local/f v1: can't be deleted: task t v1 uses version 1", "", ""},
		{"old version of a task", func(s *shelf) {
			task(load(`"artifact_id":"@local/f"`))(s)
			s.doc(store.Task, "t", 2, "task", steps())
		}, "", latest, ""},
		{
			"task of a step type that is not known", task(steps(`{"id":"x","type":"plugin_step","some":{"field":["@local/f"]}}`)),
			"@local/f v1: can't be deleted: task t v1 may use any version", "@local/f v2: can't be deleted: task t v1 may use any version", "",
		},
		{
			"task that pins in a step type that is not known", task(steps(`{"id":"x","type":"plugin_step","data":{"id":"@local/f","version":1}}`)),
			"@local/f v1: can't be deleted: task t v1 uses version 1", "", "",
		},
		{"task that speaks of it", task(steps(`{"id":"x","type":"prompt_agent","prompt":"take f and g"}`)), "", "", ""},
		{"task that writes it", task(steps(`{"id":"x","type":"snapshot_env","env_id":"e","snapshot_id":"@local/f"}`)), "", "", ""},
		{"task that writes another", task(steps(`{"id":"x","type":"snapshot_env","env_id":"e","snapshot_id":"t/f","original_universe_artifact_id":"@local/f"}`)), "", latest, ""},
		{"task that can't be read", task(`{"steps":3}`), "", "", ""},
		{
			"eval", func(s *shelf) { s.doc(store.Eval, "ev", 1, "eval", `{"tasks":[{"task_id":"t"}],"report":"@local/f"}`) },
			"@local/f v1: can't be deleted: eval ev v1 may use any version", "@local/f v2: can't be deleted: eval ev v1 may use any version", "",
		},
		{
			"env", func(s *shelf) {
				s.doc(store.Env, "e", 3, "mcp_server", `{"docker_image_artifact":{"id":"@local/f","version":2,"type":"docker_image"}}`)
			},
			"", "@local/f v2: can't be deleted: env e v3 uses version 2", "",
		},
		{
			"agent", func(s *shelf) {
				s.doc(store.Agent, "a", 1, "a2a_agent", `{"docker_image_artifact":{"id":"@local/f","version":1},"metadata":{"x":"@local/f"}}`)
			},
			"@local/f v1: can't be deleted: agent a v1 may use any version\n@local/f v1: can't be deleted: agent a v1 uses version 1", "@local/f v2: can't be deleted: agent a v1 may use any version", "",
		},
		{"environment", put(artifact.NewEnvironment(artifact.Pin{ID: "e", Version: 1}, "m", pin(1))), "@local/f v1: can't be deleted: artifact e v1 uses version 1", "", ""},
		{"universe", put(artifact.NewUniverse(artifact.Pin{ID: "w", Version: 1}, nil, []artifact.Pin{pin(2)}, nil)...), "", "@local/f v2: can't be deleted: artifact w v1 uses version 2", ""},
		{
			"file universe", put(artifact.NewFileUniverseOf(artifact.Pin{ID: "u", Version: 1}, []artifact.Member{{Bytes: artifact.Bytes{Path: "@local/f", Digest: ref.DigestOf([]byte("1"))}, Pin: pin(1)}})),
			"@local/f v1: can't be deleted: artifact u v1 uses version 1", "", "",
		},
		{
			"artifact of another type", func(s *shelf) { s.doc(store.Artifact, "p", 1, "plugin_type", `{"over":"@local/f"}`) },
			"@local/f v1: can't be deleted: artifact p v1 may use any version", "@local/f v2: can't be deleted: artifact p v1 may use any version", "",
		},
		{
			"artifact that can't be read", func(s *shelf) {
				s.doc(store.Artifact, "p", 1, artifact.Environment, `{"file_artifact_ref":"@local/f"}`)
			},
			"@local/f v1: can't be deleted: artifact p v1 may use any version", "@local/f v2: can't be deleted: artifact p v1 may use any version", "",
		},
		{"ledger", func(s *shelf) {
			s.doc(store.Env, "e", 1, "mcp_server", `{}`)
			row(s, "env e", `{"needs":{"artifact @local/f":"1"},"store_refs":{"env x":"2"}}`)
		}, "@local/f v1: can't be deleted: ledger env e v1 uses version 1", "", ""},
		{"ledger's store refs", func(s *shelf) {
			s.doc(store.Task, "t", 1, "task", `{}`)
			row(s, "task t", `{"store_refs":{"artifact @local/f":"2"}}`)
		}, "", "@local/f v2: can't be deleted: ledger task t v1 uses version 2", ""},
		{"ledger of what is gone", func(s *shelf) { row(s, "env e", `{"needs":{"artifact @local/f":"1"}}`) }, "", "", ""},
		{"ledger of itself", func(s *shelf) { row(s, "artifact @local/f", `{"needs":{}}`) }, "", "", ""},
		{"ledger that can't be read", func(s *shelf) { s.doc(store.Ledger, "odd", 1, "x", `[`) }, "", "", ""},
		{"queued run", func(s *shelf) { run(s, "queued") }, "@local/f v1: can't be deleted: run t-run may use any version", "@local/f v2: can't be deleted: run t-run may use any version\n" + latest, ""},
		{"running run", func(s *shelf) { run(s, "running") }, "@local/f v1: can't be deleted: run t-run may use any version", "@local/f v2: can't be deleted: run t-run may use any version\n" + latest, ""},
		{"ended run", func(s *shelf) { run(s, "ended") }, "", latest, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whole := strings.Join(slices.DeleteFunc([]string{tc.one, tc.two}, func(s string) bool { return s == "" }), "\n")
			for version, want := range map[int]string{0: whole, 1: tc.one, 2: tc.two} {
				s := newShelf(t)
				s.file(f, "1")
				s.file(f, "2")
				s.file("g", "3")
				tc.user(s)
				before := s.left()
				dry, dryErr := s.Delete(t.Context(), f, version, true)
				if got := s.left(); !slices.Equal(got, before) {
					t.Errorf("a dry run changed %v to %v", before, got)
				}
				done, err := s.Delete(t.Context(), f, version, false)
				if fmt.Sprint(dryErr) != fmt.Sprint(err) || names(dry.Removed) != names(done.Removed) || kept(dry.Kept) != kept(done.Kept) || dry.Objects != done.Objects || dry.Bytes != done.Bytes {
					t.Errorf("version %d: a dry run says %+v, %v, and the real one %+v, %v", version, dry, dryErr, done, err)
				}
				text := ""
				if err != nil {
					text = err.Error()
					if _, told := diag.From(err); !told {
						t.Errorf("no refusal: %v", err)
					}
				}
				if text != want {
					t.Errorf("version %d: it says\n%s\nand should\n%s", version, text, want)
				}
				if after := s.left(); (want != "") != slices.Equal(after, before) {
					t.Errorf("version %d: %v became %v", version, before, after)
				}
			}
		})
	}
}

// What belongs to an artifact goes with it, unless something else uses it; its row of the ledger and its bytes go too.
func TestDeleteTakesWhatBelongs(t *testing.T) {
	s := newShelf(t)
	s.universe("u", "a", "b")
	s.universe("u", "a")
	s.skill("s")
	s.file("other", "x")
	a, b := ref.FileID("u", "a"), ref.FileID("u", "b")
	s.doc(store.Ledger, "artifact u", 1, "x", `{}`)
	s.doc(store.Ledger, "artifact u", 2, "x", `{}`)
	s.doc(store.Task, "t", 1, "task", steps(`{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"`+b+`"}`))

	out, err := s.Delete(t.Context(), "u", 1, false)
	if err != nil || names(out.Removed) != "u v1 "+name(a, 1) || kept(out.Kept) != name(b, 1)+": task t v1 uses the latest version" {
		t.Errorf("%s; %s; %v", names(out.Removed), kept(out.Kept), err)
	}
	if out.Objects != 0 {
		t.Errorf("%d objects went, and version 2 has the same file", out.Objects)
	}
	rows, err := s.store.List(t.Context(), store.Query{Kind: store.Ledger, AllVersions: true})
	if err != nil || len(rows.Docs) != 1 || rows.Docs[0].Version != 2 {
		t.Errorf("the ledger has %+v, %v", rows.Docs, err)
	}
	if _, err := s.Delete(t.Context(), b, 0, false); err == nil {
		t.Error("a file that a task names is gone")
	}
	files := "s__files"
	if _, err := s.Delete(t.Context(), files, 0, false); err == nil || err.Error() != "s__files v1: can't be deleted: artifact s v1 uses version 1" {
		t.Errorf("%v", err)
	}
	out, err = s.Delete(t.Context(), "s", 0, false)
	if err != nil || names(out.Removed) != "s v1 s__files v1 "+name(ref.FileID(files, "SKILL.md"), 1) || out.Objects != 1 || out.Bytes != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if got := fmt.Sprint(s.left()); got != fmt.Sprintf("[other v1 u v2 %s %s]", name(a, 2), name(b, 1)) && got != fmt.Sprintf("[other v1 u v2 %s %s]", name(b, 1), name(a, 2)) {
		t.Errorf("left: %s", got)
	}
	for id, version := range map[string]int{"none": 0, "u": 7} {
		if _, err := s.Delete(t.Context(), id, version, false); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestPrune(t *testing.T) {
	s := newShelf(t)
	for i := range 4 {
		s.file("f", fmt.Sprint(i))
	}
	s.universe("u", "a", "b")
	s.universe("u", "a")
	s.skill("s")
	s.skill("s")
	s.file("old/x", "1")
	s.file("old/x", "2")
	s.commit(func(g store.Stage) {
		s.put(g, artifact.NewEnvironment(artifact.Pin{ID: "e", Version: 1}, "m", artifact.Pin{ID: "f", Version: 1}))
		s.put(g, artifact.NewEnvironment(artifact.Pin{ID: "e", Version: 2}, "m", artifact.Pin{ID: "f", Version: 2}))
		s.put(g, artifact.Document{Pin: artifact.Pin{ID: "p", Version: 1}, Type: "plugin_type", Fields: map[string]any{"x": "old/x"}})
	})
	s.doc(store.Task, "t", 1, "task", steps(`{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"s","artifact_version":1}`))
	s.commit(func(g store.Stage) { s.bytes(g, "orphan", "bytes that no document names") })
	a, b := ref.FileID("u", "a"), ref.FileID("u", "b")

	dry, err := s.Prune(t.Context(), PruneOptions{Dry: true})
	if err != nil {
		t.Fatal(err)
	}
	before := s.left()
	out, err := s.Prune(t.Context(), PruneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// f v1 is what e v1 uses, which nothing keeps; f v2 is what the latest e uses.
	want := []string{"e v1", "f v1", "f v3", "u v1", name(a, 1), name(b, 1)}
	slices.Sort(want[4:])
	if names(out.Removed) != strings.Join(want, " ") || names(dry.Removed) != names(out.Removed) || kept(dry.Kept) != kept(out.Kept) {
		t.Errorf("removed %s\nwant    %s\ndry     %s", names(out.Removed), strings.Join(want, " "), names(dry.Removed))
	}
	if dry.Objects != out.Objects || dry.Bytes != out.Bytes || out.Objects != 3 {
		t.Errorf("%d objects of %d bytes; dry: %d of %d", out.Objects, out.Bytes, dry.Objects, dry.Bytes)
	}
	if n := len(before) - len(s.left()); n != len(want) {
		t.Errorf("%d artifacts went: %v", n, s.left())
	}
	for _, want := range []string{
		"f v2: artifact e v2 uses version 2", "f v4: it is the latest version", "s v1: task t v1 uses version 1", "s__files v1: artifact s v1 uses version 1",
		"old/x v1: artifact p v1 may use any version", "u v2: it is the latest version", "p v1: it is the latest version",
	} {
		if !strings.Contains(kept(out.Kept), want) {
			t.Errorf("%q isn't among\n%s", want, kept(out.Kept))
		}
	}
	if out, err := s.Prune(t.Context(), PruneOptions{}); err != nil || len(out.Removed) != 0 || out.Objects != 0 {
		t.Errorf("again: %+v, %v", out, err)
	}
}

func TestPruneOptions(t *testing.T) {
	for _, tc := range []struct {
		o    PruneOptions
		want string
	}{
		{PruneOptions{}, "a/f v1 a/f v2 b/f v1 b/f v2"},
		{PruneOptions{Keep: 2}, "a/f v1 b/f v1"},
		{PruneOptions{Keep: 9}, ""},
		{PruneOptions{Prefix: "b/"}, "b/f v1 b/f v2"},
		{PruneOptions{Prefix: "a/", Keep: 2}, "a/f v1"},
		{PruneOptions{Prefix: "c"}, ""},
	} {
		s := newShelf(t)
		for i := range 3 {
			s.file("a/f", fmt.Sprint(i))
			s.file("b/f", fmt.Sprint(i))
		}
		out, err := s.Prune(t.Context(), tc.o)
		if err != nil || names(out.Removed) != tc.want {
			t.Errorf("%+v: %s, %v; want %s", tc.o, names(out.Removed), err, tc.want)
		}
	}
}

// Whatever is deleted and pruned while others put, what the store has is whole: every version that a document pins is there, with its bytes.
func TestRemovalsAmongPuts(t *testing.T) {
	s := newShelf(t)
	var wg sync.WaitGroup
	const rounds = 60
	for i := range 3 {
		wg.Go(func() {
			for n := range rounds {
				putPair(s, fmt.Sprintf("w%d", i), fmt.Sprint(i, n))
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range rounds {
				if _, err := s.Prune(t.Context(), PruneOptions{}); err != nil {
					t.Error(err)
				}
				if _, err := s.Delete(t.Context(), "shared", 0, false); err != nil {
					if _, told := diag.From(err); !told {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	whole(t, s.store)
}

// putPair stores a file, and an environment over it that requires it, as package artifactstore does; either is left out when a removal is quicker.
func putPair(s *shelf, id, text string) {
	for _, f := range []func(g store.Stage){
		func(g store.Stage) { s.put(g, artifact.NewFile(s.next("shared"), s.bytes(g, "f", text), "")) },
		func(g store.Stage) {
			d, err := s.store.Get(s.Context(), store.Artifact, "shared", 0)
			if err != nil {
				return
			}
			s.put(g, artifact.NewEnvironment(s.next(id), "m", artifact.Pin{ID: "shared", Version: d.Version}))
			g.Require(func(ctx context.Context, docs store.Docs) error {
				_, err := docs.Get(ctx, store.Artifact, "shared", d.Version)
				return err
			})
		},
	} {
		g, err := s.store.Begin(s.Context())
		if err != nil {
			s.Error(err)
			return
		}
		f(g)
		if err := g.Commit(s.Context()); err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			s.Error(err)
		}
	}
}

// whole checks that every version that an artifact pins is there, and every object.
func whole(t *testing.T, s store.Store) {
	t.Helper()
	p, err := s.List(context.Background(), store.Query{Kind: store.Artifact, AllVersions: true, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	checked := map[ref.Digest]bool{}
	for _, d := range p.Docs {
		needs, err := artifact.Needs(d.Type, d.Body)
		if err != nil {
			t.Error(err)
		}
		for _, n := range needs {
			if _, err := s.Get(context.Background(), store.Artifact, n.ID, n.Version); err != nil {
				t.Errorf("%s pins what is gone: %v", name(d.ID, d.Version), err)
			}
		}
		for _, o := range d.Objects {
			checked[o] = true
		}
	}
	for o := range maps.Keys(checked) {
		if err := s.Verify(context.Background(), o); err != nil {
			t.Error(err)
		}
	}
}

// FuzzSurvey: whatever documents say, what uses an artifact can be told.
func FuzzSurvey(f *testing.F) {
	f.Add("task", `{"steps":[{"id":"l","type":"load_artifact","artifacts":[{"id":"@local/f","version":1}]},{"type":3},[],null]}`)
	f.Add("env", `{"id":"e","docker_image_artifact":{"id":"@local/f","version":1,"type":"docker_image"}}`)
	f.Add("eval", `{"tasks":[{"task_id":"@local/f"}]}`)
	f.Add("ledger", `{"inputs":{"needs":{"artifact @local/f":"1"},"store_refs":{"x":"y"}}}`)
	f.Add("artifact", `{"id":"p","version":1,"deep":[[{"id":{"id":"@local/f"},"version":9999999999999999999}]]}`)
	f.Fuzz(func(t *testing.T, kind, body string) {
		s := newShelf(t)
		s.file("@local/f", "1")
		s.doc(store.Kind(kind+"x"), "artifact x", 1, "plugin_type", body)
		if kind != "" {
			s.doc(store.Kind(kind), "artifact x", 2, "plugin_type", body)
		}
		out, err := s.Delete(t.Context(), "@local/f", 0, true)
		if refused := err != nil; refused != (len(out.Kept) > 0) {
			t.Errorf("%+v, %v", out, err)
		}
	})
}
