package taskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/task"
)

// newStore is a store in memory that has one entity of each kind, and of artifacts one of two types.
func newStore(t testing.TB) (*Store, *mem.Store) {
	t.Helper()
	m := mem.New(mem.Options{})
	put(t, m, store.Doc{Kind: store.Artifact, ID: "@local/~/b/f", Version: 1, Type: "file"}, store.Doc{Kind: store.Artifact, ID: "@local/~/b/f", Version: 2, Type: "file"},
		store.Doc{Kind: store.Artifact, ID: "@local/~/b/u", Version: 1, Type: "file_artifact_universe"},
		store.Doc{Kind: store.Artifact, ID: "bare file", Version: 1, Type: "file"},
		store.Doc{Kind: store.Env, ID: "@local/~/b/mail", Version: 1, Type: "mcp_server"},
		store.Doc{Kind: store.Agent, ID: "@local/~/b/bot", Version: 1, Type: "a2a_agent"})
	return New(m, step.Kinds()), m
}

func put(t testing.TB, s store.Store, ds ...store.Doc) {
	t.Helper()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if d.Body == nil {
			d.Body = []byte("{}")
		}
		g.Doc(d, store.LatestIs(d.Version-1))
	}
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// parse reads a document under the name f.json, or f.toml where it isn't JSON.
func parse(t testing.TB, src string) doc.Node {
	t.Helper()
	name := "f.toml"
	if strings.ContainsAny(src[:1], `[{"0`) && !strings.HasPrefix(src, "[[") {
		name = "f.json"
	}
	tree, l := doc.Parse(name, []byte(src))
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	return tree.Root()
}

func texts(l diag.List) []string {
	var out []string
	for _, s := range []diag.Severity{diag.Error, diag.Warning} {
		for _, p := range l.Of(s) {
			out = append(out, p.String())
		}
	}
	return out
}

const steps = `[
 {"id": "box", "type": "deploy_sandbox", "sandbox_name": "b", "sandbox_mode": "vm"},
 {"id": "load", "type": "load_artifact", "sandbox_name": "b", "artifact_id": "@local/~/b/f"}
]`

func TestCreateTask(t *testing.T) {
	s, m := newStore(t)
	ctx := t.Context()
	for want := 1; want <= 2; want++ {
		w, l, err := s.CreateTask(ctx, "mail/smoke", parse(t, steps), task.Options{})
		if err != nil || len(l) > 0 || w != (Written{"mail/smoke", want, 2}) {
			t.Fatalf("%+v, %v, %v", w, l, err)
		}
	}
	d, err := m.Get(ctx, store.Task, "mail/smoke", 0)
	if err != nil {
		t.Fatal(err)
	}
	// The document that a bundle's write stores: steps as authored, no defaults filled in.
	want := fmt.Sprintf(`{"created_at_utc":"%s","id":"mail/smoke","steps":[{"id":"box","sandbox_mode":"vm","sandbox_name":"b","type":"deploy_sandbox"},`+
		`{"artifact_id":"@local/~/b/f","id":"load","sandbox_name":"b","type":"load_artifact"}],"type":"task","version":2}`, d.Created.Format("2006-01-02T15:04:05.000000+00:00"))
	if string(d.Body) != want || d.Type != "task" || d.Owner != "" || len(d.Objects) != 0 || time.Since(d.Created) > time.Hour {
		t.Errorf("%+v\n got %s\nwant %s", d, d.Body, want)
	}
	got, err := s.Get(ctx, store.Task, "mail/smoke", 1)
	if err != nil || got.Version != 1 || got.List.Len() != 2 || got.List.At(1).Get("artifact_id").Text() != "@local/~/b/f" {
		t.Errorf("%+v, %v", got, err)
	}
	x, tk, l, err := s.CheckStored(ctx, "mail/smoke", 0, task.Options{})
	if err != nil || len(l) > 0 || x.Version != 2 || tk.Version != 2 || tk.ID != "mail/smoke" || len(tk.Steps) != 2 {
		t.Errorf("%+v, %+v, %v, %v", x, tk, l, err)
	}
}

func TestRefusals(t *testing.T) {
	const box = `{"id":"box","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm"}`
	load := func(fields string) string {
		return "[" + box + `,{"id":"load","type":"load_artifact","sandbox_name":"b",` + fields + "}]"
	}
	tests := []struct {
		id, src string
		want    []string
	}{
		{"t", load(`"artifact_id":"@local/~/b/f"`), nil},
		{"t", load(`"artifact_id":"bare file"`), nil},
		{"@local/~/x/t", load(`"artifact_id":"@local/~/b/f","artifact_version":1`), nil},
		{"t", load(`"artifact_id":"@local/~/b/F"`), []string{"f.json: step 'load': artifact_id: there is no artifact '@local/~/b/F' in the store; did you mean '@local/~/b/f'? (line 1)"}},
		{"t", load(`"artifact_id":"@local/~/b/f","artifact_version":3`), []string{"f.json: step 'load': artifact_id: there is no version 3 of artifact '@local/~/b/f' in the store; its latest is version 2 (line 1)"}},
		{"t", load(`"artifact_id":"@local/~/b/mail"`), []string{"f.json: step 'load': artifact_id: there is no artifact '@local/~/b/mail' in the store; the store has an entity of that id, but it is of kind env (line 1)"}},
		{"t", load(`"artifact_id":"somewhere else"`), []string{"f.json: step 'load': artifact_id: there is no artifact 'somewhere else' in the store (line 1)"}},
		{"t", load(`"artifact_id":"@foo/x"`), []string{"f.json: step 'load': artifact_id: '@foo/x' is no id: ids that begin with @ begin with @local/ (line 1)"}},
		{"t", load(`"artifact_id":"@local/~/b/fe\u0301"`), []string{"f.json: step 'load': artifact_id: '@local/~/b/fe\u0301' must be written in Unicode's composed form (NFC) (line 1)"}},
		{"@foo/t", load(`"artifact_id":"@local/~/b/f"`), []string{"'@foo/t' is no id: ids that begin with @ begin with @local/"}},
		{"local/t", load(`"artifact_id":"@local/~/b/f"`), []string{"'local/t' is spelled as files of local ids are; begin it with another word than local"}},
		{"t", `{}`, []string{"f.json: must be a list of steps, not a table; a task is a list of steps, each a table with id and type (line 1)"}},
		{"t", `[]`, []string{"f.json: has no steps; add a step, or remove the task (line 1)"}},
		// Typed fields, and every problem in one answer.
		{
			"t", `[
{"id":"a","type":"env_outcome_verifier","env_id":"@local/~/b/mail","file_artifact_id":"@local/~/b/u"},
{"id":"b","type":"deploy_env","env_id":"nope","artifact_id":"@local/~/b/f","artfact_version":1},
{"id":"b","type":"deploy_agent","a2a_agent_id":"@local/~/b/bot","a2a_agent_version":9,"env_ids":["@local/~/b/mail","x:y"]}]`,
			[]string{
				"f.json: Duplicate step id 'b' at position 2; the step at position 1 has it already; give each step an id of its own (line 4)",
				"f.json: step 'a': file_artifact_id: '@local/~/b/u' has the type file_artifact_universe in the store, but this field takes file (line 2)",
				"f.json: step 'b': a2a_agent_id: there is no version 9 of agent '@local/~/b/bot' in the store; its latest is version 1 (line 4)",
				"f.json: step 'b': env_id: there is no env 'nope' in the store (line 3)",
				"f.json: step 'b': env_ids[1]: 'x:y' contains ':'; a local id may contain only letters, digits, spaces and . _ - ~ / @ ( ) + , & (line 4)",
				"f.json: step 'b': unknown key 'artfact_version'; did you mean 'artifact_version'? known here: always, artifact_id, artifact_version, cpu, depends_on, disk_size_gb, env_id, env_state_instance_id, env_state_type, env_version, fail_task_on_error, gateway_mode, id, memory_mb, metadata, retry_config, sandbox_type, timeout_seconds, ttl_seconds, type, version (line 3)",
			},
		},
		// What a step writes is read by those that come after it.
		{"t", `[{"id":"s","type":"snapshot_env","env_id":"@local/~/b/mail","snapshot_id":"snap"},{"id":"d","type":"deploy_env","env_id":"@local/~/b/mail","artifact_id":"snap"}]`, nil},
		{"t", `[{"id":"c","type":"build_mcp_cli","env_id":"@local/~/b/mail","command_name":"m"},{"id":"a","type":"add_skills","cli_artifact_ids":["@local/~/b/mail__cli"]}]`, nil},
		{
			"t", `[{"id":"s","type":"snapshot_env","env_id":"@local/~/b/mail","snapshot_id":"snap"},
{"id":"d","type":"deploy_env","env_id":"@local/~/b/mail","artifact_id":"snap","depends_on":[]},
{"id":"p","type":"deploy_env","env_id":"@local/~/b/mail","artifact_id":"snap","artifact_version":1},
{"id":"k","type":"add_skills","cli_artifact_ids":["snap"]},
{"id":"o","type":"snapshot_env","env_id":"@local/~/b/mail","snapshot_id":"a:b"}]`,
			[]string{
				"f.json: step 'd': artifact_id: step 's' writes 'snap', and this step doesn't depend on it; add it to depends_on (line 2)",
				"f.json: step 'k': cli_artifact_ids[0]: 'snap' is this task's environment_universe, but this field takes cli (line 4)",
				"f.json: step 'o': snapshot_id: can't name what the step writes: 'a:b' contains ':'; a local id may contain only letters, digits, spaces and . _ - ~ / @ ( ) + , & (line 5)",
				"f.json: step 'p': artifact_id: 'snap' is written by this task, so it has no fixed version; drop the pin (line 3)",
			},
		},
		{"t", `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","metadata":{"x":` + strings.Repeat("[", 97) + strings.Repeat("]", 97) + `}}]`, []string{"f.json: has too many lists and tables within each other; flatten it (line 1)"}},
	}
	for _, tt := range tests {
		s, m := newStore(t)
		w, l, err := s.CreateTask(t.Context(), tt.id, parse(t, tt.src), task.Options{})
		if err != nil || !slices.Equal(texts(l), tt.want) {
			t.Errorf("%s\n got %q\nwant %q, %v", tt.src, texts(l), tt.want, err)
		}
		_, gerr := m.Get(t.Context(), store.Task, tt.id, 0)
		if refused := len(tt.want) > 0; refused != errors.Is(gerr, store.ErrNotFound) || refused == (w.Version == 1) {
			t.Errorf("%s: stored %+v, %v", tt.src, w, gerr)
		}
	}
}

func TestAllowUnknownFields(t *testing.T) {
	s, _ := newStore(t)
	n := parse(t, `[{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","colour":"red"}]`)
	if _, l, err := s.CreateTask(t.Context(), "t", n, task.Options{}); err != nil || !l.HasErrors() {
		t.Errorf("%v, %v", l, err)
	}
	w, l, err := s.CreateTask(t.Context(), "t", n, task.Options{AllowUnknownFields: true})
	if err != nil || w.Version != 1 || l.HasErrors() || len(texts(l)) != 1 {
		t.Errorf("%+v, %v, %v", w, l, err)
	}
}

func TestEvals(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	for _, id := range []string{"a", "a", "b", "@local/~/b/c"} {
		if _, l, err := s.CreateTask(ctx, id, parse(t, steps), task.Options{}); err != nil || len(l) > 0 {
			t.Fatal(l, err)
		}
	}
	create := func(src string) (Written, []string) {
		w, l, err := s.CreateEval(ctx, "e", parse(t, src))
		if err != nil {
			t.Fatal(err)
		}
		return w, texts(l)
	}
	refused := []struct {
		src  string
		want []string
	}{
		{`[]`, []string{`f.json: lists no tasks; an eval is a list of tasks: ["<id>", {"task_id": "<id>", "task_version": 2}] (line 1)`}},
		{`"a"`, []string{`f.json: must be a list of tasks, not a string; an eval is a list of tasks: ["<id>", {"task_id": "<id>", "task_version": 2}] (line 1)`}},
		{"[\n3,\n\"\",\n{\"task\":\"a\"},\n{\"task_id\":\"\"},\n{\"task_id\":\"a\",\"task_version\":0},\n\"a\",\n{\"task_id\":\"b\",\"task_version\":7},\n\"@x\", \"nope\"]", []string{
			"f.json: task 0: must be an id or a table of task_id and optional task_version, not 3 (line 2)",
			"f.json: task 1: must be an id or a table of task_id and optional task_version, not \"\" (line 3)",
			"f.json: task 2: task_id is missing; write it: a string (line 4)",
			"f.json: task 2: unknown key 'task'; known here: task_id, task_version (line 4)",
			"f.json: task 3: task_id: must not be empty (line 5)",
			"f.json: task 4: task_version: must be at least 1, not 0 (line 6)",
			"f.json: task 5: 'a' is listed twice, first at task 4: task_id; remove one (line 7)",
			"f.json: task 6: task_id: there is no version 7 of task 'b' in the store; its latest is version 1 (line 8)",
			"f.json: task 7: '@x' is no id: ids that begin with @ begin with @local/ (line 9)",
			"f.json: task 8: there is no task 'nope' in the store (line 9)",
		}},
		{"tasks = ['a', 'A', 'a']\nid = '@local/x'\nk = 5", []string{
			"f.toml: id: '@local/x' is another id than 'e', which was asked for; drop one of them (line 2)",
			"f.toml: tasks[1]: there is no task 'A' in the store; did you mean 'a'? (line 1)",
			"f.toml: tasks[2]: 'a' is listed twice, first at tasks[0]; remove one (line 1)",
			"f.toml: unknown key 'k'; known here: id, tasks, type (line 3)",
		}},
		{"tasks = []", []string{"f.toml: tasks: must not be empty (line 1)"}},
	}
	for _, tt := range refused {
		if w, got := create(tt.src); !slices.Equal(got, tt.want) || w.Version != 0 {
			t.Errorf("%s: %+v\n got %q\nwant %q", tt.src, w, got, tt.want)
		}
	}
	if w, l := create(`["a", {"task_id": "@local/~/b/c", "task_version": 1}]`); w != (Written{"e", 1, 2}) || l != nil {
		t.Fatal(w, l)
	}
	if w, l := create("id = 'e'\ntasks = ['a', {task = 'b', version = 1}]"); w != (Written{"e", 2, 2}) || l != nil {
		t.Fatal(w, l)
	}
	tasksOf := func(version int) []TaskRef {
		e, err := s.Get(ctx, store.Eval, "e", version)
		if err != nil {
			t.Fatal(err)
		}
		return e.Tasks()
	}
	if got := tasksOf(1); !slices.Equal(got, []TaskRef{{"a", 0}, {"@local/~/b/c", 1}}) {
		t.Error(got)
	}
	if got := tasksOf(2); !slices.Equal(got, []TaskRef{{"a", 0}, {"b", 1}}) {
		t.Error(got)
	}
	// Merged by task id: what is listed keeps its place.
	a, l, err := s.AddTasks(ctx, "e", 0, parse(t, `["@local/~/b/c", {"task_id":"a","task_version":2}]`))
	if err != nil || len(l) > 0 || a.Version != 3 || a.N != 3 || !slices.Equal(a.Added, []string{"@local/~/b/c"}) || !slices.Equal(a.Replaced, []string{"a"}) {
		t.Errorf("%+v, %v, %v", a, l, err)
	}
	if got := tasksOf(0); !slices.Equal(got, []TaskRef{{"a", 2}, {"b", 1}, {"@local/~/b/c", 0}}) {
		t.Error(got)
	}
	// An older base gives the next version all the same.
	if a, _, err := s.AddTasks(ctx, "e", 1, parse(t, `["b"]`)); err != nil || a.Version != 4 || a.N != 3 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, l, err := s.AddTasks(ctx, "e", 0, parse(t, `["nope"]`)); err != nil || len(texts(l)) != 1 {
		t.Errorf("%v, %v", l, err)
	}
	for version, want := range map[int]string{0: "eval 'f' is not in the store; did you mean 'e'?", 9: "eval 'f' is not in the store; did you mean 'e'?"} {
		if _, _, err := s.AddTasks(ctx, "f", version, parse(t, `["b"]`)); !errors.Is(err, store.ErrNotFound) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := s.Get(ctx, store.Task, "c", 0); err == nil || err.Error() != "task 'c' is not in the store; did you mean '@local/~/b/c'?" {
		t.Errorf("the end of an id: %v", err)
	}
	if _, _, err := s.AddTasks(ctx, "e", 9, parse(t, `["b"]`)); !errors.Is(err, store.ErrNotFound) || err.Error() != "version 9 of eval 'e' is not in the store; the latest is version 4" {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	s, _ := newStore(t)
	for i := range 5 {
		id := fmt.Sprintf("t%d", i)
		if _, _, err := s.CreateTask(t.Context(), id, parse(t, steps), task.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.CreateTask(t.Context(), "t1", parse(t, steps), task.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		prefix     string
		skip, take int
		want       string
		more       bool
	}{
		{"", 0, 10, "t1v2 t4v1 t3v1 t2v1 t0v1", false},
		{"", 0, 2, "t1v2 t4v1", true},
		{"", 2, 2, "t3v1 t2v1", true},
		{"", 4, 1, "t0v1", false},
		{"", 5, 3, "", false},
		{"t3", 0, 3, "t3v1", false},
		{"x", 0, 3, "", false},
	} {
		got, more, err := s.List(t.Context(), store.Task, tt.prefix, tt.skip, tt.take)
		var names []string
		for _, x := range got {
			names = append(names, fmt.Sprintf("%sv%d", x.ID, x.Version))
		}
		if err != nil || strings.Join(names, " ") != tt.want || more != tt.more {
			t.Errorf("%+v: %v, %v, %v", tt, names, more, err)
		}
	}
}

func TestDamaged(t *testing.T) {
	s, m := newStore(t)
	put(t, m, store.Doc{Kind: store.Task, ID: "d", Version: 1, Type: "task", Body: []byte(`{"steps":`)}, store.Doc{Kind: store.Task, ID: "n", Version: 1, Type: "task", Body: []byte(`{"steps":{}}`)})
	for _, id := range []string{"d", "n"} {
		if _, err := s.Get(t.Context(), store.Task, id, 0); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "task '"+id+"' v1") {
			t.Error(err)
		}
	}
}

// TestRacers: writers of one id each get a version of their own, none is lost, on the store that the program uses.
func TestRacers(t *testing.T) {
	dir := t.TempDir()
	const n = 12
	var wg sync.WaitGroup
	versions := make([]int, n)
	src := parse(t, `[{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm"}]`)
	for i := range n {
		wg.Go(func() {
			st, err := sqlite.Open(dir, sqlite.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			w, l, err := New(st, step.Kinds()).CreateTask(t.Context(), "t", src, task.Options{})
			if err != nil || len(l) > 0 {
				t.Error(l, err)
			}
			versions[i] = w.Version
		})
	}
	wg.Wait()
	slices.Sort(versions)
	for i, v := range versions {
		if v != i+1 {
			t.Fatal(versions)
		}
	}
}

// meddler lets something happen between a write's check and its commit.
type meddler struct {
	store.Store
	before func()
}

func (m *meddler) Begin(ctx context.Context) (store.Stage, error) {
	if f := m.before; f != nil {
		m.before = nil
		f()
	}
	return m.Store.Begin(ctx)
}

func TestPlansAgain(t *testing.T) {
	_, inner := newStore(t)
	m := &meddler{Store: inner}
	s := New(m, step.Kinds())
	// Another version came in between.
	m.before = func() {
		put(t, inner, store.Doc{Kind: store.Task, ID: "t", Version: 1, Type: "task", Body: []byte(`{"steps":[]}`)})
	}
	if w, l, err := s.CreateTask(t.Context(), "t", parse(t, steps), task.Options{}); err != nil || len(l) > 0 || w.Version != 2 {
		t.Errorf("%+v, %v, %v", w, l, err)
	}
	// What the task names was removed in between: it is refused as if it had never been there.
	m.before = func() {
		g, err := inner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.Delete(store.Artifact, "@local/~/b/f", 0)
		if err := g.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w, l, err := s.CreateTask(t.Context(), "t", parse(t, steps), task.Options{})
	if err != nil || w.Version != 0 || len(texts(l)) != 1 || !strings.Contains(texts(l)[0], "there is no artifact '@local/~/b/f'") {
		t.Errorf("%+v, %v, %v", w, l, err)
	}
	// A store that always conflicts ends the write with an error that says so.
	s = New(&deaf{inner}, step.Kinds())
	if _, _, err := s.CreateTask(t.Context(), "x", parse(t, `[{"id":"r","type":"review"}]`), task.Options{}); !errors.Is(err, store.ErrConflict) || !strings.HasPrefix(err.Error(), "writing task 'x': ") {
		t.Error(err)
	}
}

// deaf is a store whose commits never get in.
type deaf struct{ store.Store }

func (d *deaf) Begin(ctx context.Context) (store.Stage, error) {
	g, err := d.Store.Begin(ctx)
	return deafStage{g}, err
}

type deafStage struct{ store.Stage }

func (deafStage) Commit(context.Context) error { return store.ErrConflict }

// FuzzDocuments: no text makes the checks of a task or an eval panic, and what is stored can be read back.
func FuzzDocuments(f *testing.F) {
	for _, src := range []string{
		steps, `[]`, `{}`, `["a"]`, `[{"task_id":"a","task_version":1}]`, `{"tasks":["a",{"task":"b","version":1}],"id":"e"}`, `[{"id":"s","type":"snapshot_env","env_id":"x","snapshot_id":"y"}]`,
		`[{"id":"c","type":"build_mcp_cli","env_id":"@local/x","command_name":"m"}]`, `[{"task_id":"a","task_version":99999999999999999999}]`,
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		tree, _ := doc.ParseJSON("f.json", []byte(src))
		if tree == nil {
			return
		}
		s, _ := newStore(t)
		for _, kind := range []store.Kind{store.Task, store.Eval} {
			var l diag.List
			var err error
			if kind == store.Task {
				_, l, err = s.CreateTask(t.Context(), "a", tree.Root(), task.Options{})
			} else {
				_, l, err = s.CreateEval(t.Context(), "a", tree.Root())
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range texts(l) {
				if strings.ContainsAny(line, "\n\x00") || strings.Contains(line, "%!") {
					t.Errorf("%q", line)
				}
			}
			if _, err := s.Get(t.Context(), kind, "a", 0); (err == nil) == l.HasErrors() {
				t.Errorf("stored: %v, with %q", err, texts(l))
			}
		}
	})
}
