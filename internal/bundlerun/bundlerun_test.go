package bundlerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/eval"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/step/world"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// ownerEnv has the test binary run a task of the store in this folder, as a process that tests stop and kill.
const ownerEnv = "AGENTENV_TEST_OWNER"

func TestMain(m *testing.M) {
	pid1.Dispatch()
	nethost.Dispatch()
	if dir := os.Getenv(ownerEnv); dir != "" {
		os.Exit(ownRuns(dir))
	}
	goleak.VerifyTestMain(m)
}

// rig is an engine over a store in memory and fake sandboxes.
type rig struct {
	*Engine
	store *mem.Store
	fake  *fake.Provider
	rep   *reporter
}

func newRig(t *testing.T, o fake.Options) *rig {
	t.Helper()
	if o.Programs == nil {
		o.Programs = map[string]fake.Program{"bash": shell}
	}
	r := &rig{store: mem.New(mem.Options{}), fake: fake.New(o), rep: &reporter{}}
	boxes := catalog.New[sandbox.Provider]("sandbox type")
	boxes.Add("local", catalog.Origin{Kind: catalog.Builtin}, r.fake)
	log := slog.New(slog.DiscardHandler)
	d := deploy.New(boxes, []string{"local"}, log)
	execs := catalog.New[step.Executor]("executor")
	for name, e := range map[string]step.Executor{
		"deploy_sandbox": world.NewDeploySandbox(d), "teardown_sandboxes": world.NewTeardownSandboxes(d, nil, nil),
		"load_artifact": data.NewLoadArtifact(r.store, d, nil, nil, data.NewDownloads(false)), "verify_sandbox": verify.NewVerifySandbox(d),
		"aggregate_verifiers": verify.NewAggregateVerifiers(),
	} {
		execs.Add(name, catalog.Origin{Kind: catalog.Builtin}, e)
	}
	r.Engine = &Engine{Bundle: bundle.Options{Kinds: step.Kinds()}, Executors: execs, Store: r.store, Runs: r.store.Runs(), Deploy: d, Log: log}
	t.Cleanup(func() { _ = r.fake.Close() })
	return r
}

// shell knows a few words.
func shell(ctx context.Context, p *fake.Proc) guest.Exit {
	switch word := strings.Fields(p.Argv[2])[0]; word {
	case "true":
		return fake.Code(0)
	case "hang":
		<-ctx.Done()
		return fake.Code(1)
	case "die":
		go p.Machine.Kill()
		<-ctx.Done()
		return fake.Code(0)
	default:
		_, _ = io.WriteString(p.Stderr, "no")
		return fake.Code(1)
	}
}

// reporter keeps what it is told, as lines.
type reporter struct {
	mu      sync.Mutex
	lines   []string
	started func(RunRef)
	steps   func(RunRef, run.StepStarted)
}

func (r *reporter) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *reporter) Problems(l diag.List) { r.add("problems %s", l.Of(diag.Warning)) }
func (r *reporter) Wrote(l ledger.Line)  { r.add("%s", l) }
func (r *reporter) Declared(d Declared)  { r.add("%s", d) }
func (r *reporter) Waiting()             { r.add("waiting") }
func (r *reporter) RunStarted(ref RunRef) {
	if r.started != nil {
		r.started(ref)
	}
}

func (r *reporter) StepStarted(ref RunRef, s run.StepStarted) {
	r.add("[%s] step %d/%d %s (%s)", ref.Label, s.Number, s.Of, s.ID, s.Type)
	if r.steps != nil {
		r.steps(ref, s)
	}
}

func (r *reporter) StepEnded(ref RunRef, s run.StepEnded) {
	r.add("[%s] step %d/%d %s %s", ref.Label, s.Number, s.Of, s.ID, s.Status)
}
func (r *reporter) RunEnded(res RunResult) { r.add("[%s] %s", res.Label, res.Status) }

// files is a bundle whose source has no folder.
func files(kv ...string) bundle.Source {
	m := fstest.MapFS{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = &fstest.MapFile{Data: []byte(kv[i+1]), Mode: 0o644}
	}
	return bundle.Source{FS: m, Name: "b", Root: "test/b", IDRoot: "@local/test/b"}
}

const (
	box     = `{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"}`
	loading = `{"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "greeting", "destination_path": "/app/greeting"}`
	greets  = `{"id": "hello", "type": "verify_sandbox", "sandbox_name": "box", "base_dir": "/app/greeting", "verifier_id": "hello", "criteria": [
		{"type": "probe_file_contains", "paths": ["hello.txt"], "expected": "hello"}]}`
)

func hello() bundle.Source {
	return files("artifacts/greeting/hello.txt", "hello\n", "artifacts/greeting/check.sh", "true\n",
		"tasks/hello.json", "["+box+","+loading+","+greets+"]")
}

// bash is a task of one command.
func bash(cmd string) string {
	return `[` + box + `, {"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "verifier_id": "v", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "` + cmd + `"}]}]`
}

func (r *rig) want(t *testing.T, what string, got, want any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestHello(t *testing.T) {
	r := newRig(t, fake.Options{})
	s, err := r.Run(t.Context(), Request{Source: hello()}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, "lines", r.rep.lines, []string{
		"artifacts/greeting: v1 (new)", "tasks/hello.json: v1 (new)",
		"[tasks/hello.json] step 1/3 box (deploy_sandbox)", "[tasks/hello.json] step 1/3 box succeeded",
		"[tasks/hello.json] step 2/3 load (load_artifact)", "[tasks/hello.json] step 2/3 load succeeded",
		"[tasks/hello.json] step 3/3 hello (verify_sandbox)", "[tasks/hello.json] step 3/3 hello succeeded",
		"[tasks/hello.json] passed",
	})
	res := s.Runs[0]
	if !regexp.MustCompile(`^@local/test/b/hello-[a-z0-9]{8}$`).MatchString(res.ID) {
		t.Error(res.ID)
	}
	r.want(t, "run", []any{res.Status, res.Scores, res.Version, res.Started, res.Isolation, res.Failures}, []any{"passed", map[string]float64{"hello": 1}, 1, true, "none", nil})
	r.want(t, "counts", s.Counts, eval.Counts{N: 1, Passed: 1})
	r.want(t, "down", []any{s.TornDown, len(s.StillUp), len(r.fake.Machines())}, []any{1, 0, 0})
	rec, err := runlog.Load(t.Context(), r.Runs, res.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, "record", []any{rec.Status, rec.Task, rec.TaskVersion, rec.Label, rec.Bundle, rec.Group, rec.Trial, rec.Owner, len(rec.Steps), rec.Isolation},
		[]any{"passed", "@local/test/b/hello", 1, "tasks/hello.json", "test/b", s.Group, 1, nil, 3, "none"})

	r.rep.lines = nil
	again, err := r.Run(t.Context(), Request{Source: hello()}, r.rep)
	if err != nil || again.Runs[0].ID == res.ID || again.Group == s.Group {
		t.Fatal(again, err)
	}
	r.want(t, "second run", r.rep.lines[:2], []string{"artifacts/greeting: v1, unchanged", "tasks/hello.json: v1, unchanged"})
}

func TestDryRunWritesNothing(t *testing.T) {
	r := newRig(t, fake.Options{})
	s, err := r.Run(t.Context(), Request{Source: hello(), DryRun: true, K: 3}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, "lines", r.rep.lines, []string{"artifacts/greeting: v1 (new)", "tasks/hello.json: v1 (new)"})
	r.want(t, "would run", []any{len(s.WouldRun), s.WouldRun[0].Label, s.WouldRun[0].Version, s.Exit(nil)}, []any{1, "tasks/hello.json", 1, 0})
	if _, err := r.store.Get(t.Context(), store.Task, "@local/test/b/hello", 0); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	if page, _ := r.Runs.List(t.Context(), runlog.Query{}); len(page.Runs) != 0 || len(r.fake.Machines()) != 0 {
		t.Error("a dry run ran")
	}
}

func TestEverythingWrongIsToldAtOnceAndNothingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		src  bundle.Source
		req  Request
		want string
	}{
		"parse": {
			files("tasks/a.json", "{", "tasks/b__c.json", "[]", "artifacts/x/artifact.toml", "type = 5"),
			Request{},
			"artifacts/x/artifact.toml: |tasks/a.json: ",
		},
		"a slip, and what neither the bundle nor the store has": {
			files("tasks/a.json", `[
				{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_nam": "x"},
				{"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "tol"}]`,
				"tasks/b.json", `[{"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "tolo"}]`),
			Request{},
			"tasks/a.json: step 'box': unknown key 'sandbox_nam'|step 'load': artifact_id: there is no artifact 'tol' in this bundle or in the store|" +
				"tasks/b.json: step 'load': artifact_id: there is no artifact 'tolo'",
		},
		"unbuilt and unsupported": {
			files("tasks/a.json", `[{"id": "e", "type": "deploy_env", "env_id": "@local/x"}, {"id": "r", "type": "review"}]`,
				"tasks/b.json", `[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "b", "sandbox_mode": "container", "image": "x", "port": 1}]`),
			Request{},
			"tasks/a.json: step 'e': deploy_env steps|tasks/a.json: step 'r': review steps|tasks/b.json: step 'box': sandbox_mode: ",
		},
		"chain":   {hello(), Request{Sandbox: []string{"modal"}}, "tasks/hello.json: step 'box': sandbox_type: 'modal': no such sandbox type here"},
		"no task": {hello(), Request{Selection: bundle.Selection{Tasks: []string{"helo"}}}, "--task"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			if name == "unbuilt and unsupported" { // the environment is stored, so that planning finds it
				st, _ := r.store.Begin(t.Context())
				st.Doc(store.Doc{Kind: store.Env, ID: "@local/x", Version: 1, Type: "mcp_server", Body: []byte("{}")}, store.Absent)
				if err := st.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c.req.Source = c.src
			_, err := r.Run(t.Context(), c.req, r.rep)
			l, ok := diag.From(err)
			if !ok {
				t.Fatalf("no refusal: %v", err)
			}
			for part := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(l.Err().Error(), part) {
					t.Errorf("%q lacks %q", l.Err().Error(), part)
				}
			}
			if page, _ := r.store.List(t.Context(), store.Query{Kind: store.Task}); len(page.Docs) != 0 || len(r.rep.lines) != 0 {
				t.Errorf("written: %v, told: %q", page.Docs, r.rep.lines)
			}
		})
	}
}

func TestArtifactThatIsWrittenAnewIsCheckedBeforeItIs(t *testing.T) {
	r := newRig(t, fake.Options{})
	src := files("skills/s/SKILL.md", "---\nname: s\ndescription: d\n---\nbody\n",
		"tasks/a.json", "["+box+`, {"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": "s"}]`)
	_, err := r.Run(t.Context(), Request{Source: src}, r.rep)
	if err == nil || !strings.Contains(err.Error(), "tasks/a.json: step 'load': artifact_id: '@local/test/b/s' is of type skill, which can't be loaded into a sandbox") {
		t.Error(err)
	}
}

func TestCheckNeedsNoStore(t *testing.T) {
	e := &Engine{Bundle: bundle.Options{Kinds: step.Kinds()}}
	l, err := e.Check(t.Context(), hello(), false)
	if err != nil || l.HasErrors() {
		t.Errorf("%v %v", l, err)
	}
	typo := files("tasks/a.json", `[{"id": "r", "type": "review", "lable": "x"}]`)
	l, err = e.Check(t.Context(), typo, false)
	if err != nil || !l.HasErrors() {
		t.Errorf("%v %v", l, err)
	}
	l, err = e.Check(t.Context(), typo, true)
	if err != nil || l.HasErrors() || len(l.Of(diag.Warning)) != 1 {
		t.Errorf("%v %v", l, err)
	}
}

func TestOutcomesAndExitCodes(t *testing.T) {
	half, most := 0.5, 0.9
	for name, c := range map[string]struct {
		tasks  map[string]string
		counts eval.Counts
		exits  [3]int // without --fail-under, with 0.5, with 0.9
	}{
		"passed":      {map[string]string{"a": bash("true")}, eval.Counts{N: 1, Passed: 1}, [3]int{0, 0, 0}},
		"below 1":     {map[string]string{"a": bash("true"), "b": bash("no")}, eval.Counts{N: 2, Passed: 1, Scored: 1}, [3]int{0, 0, 3}},
		"all below":   {map[string]string{"b": bash("no")}, eval.Counts{N: 1, Scored: 1}, [3]int{0, 3, 3}},
		"unscored":    {map[string]string{"a": "[" + box + "]"}, eval.Counts{N: 1, Unscored: 1}, [3]int{0, 1, 1}},
		"some scored": {map[string]string{"a": "[" + box + "]", "b": bash("true")}, eval.Counts{N: 2, Unscored: 1, Passed: 1}, [3]int{0, 0, 0}},
		"failed": {
			map[string]string{"a": "[" + box + "," + strings.Replace(box, `"id": "box"`, `"id": "b2"`, 1) + "]", "b": bash("true")},
			eval.Counts{N: 2, Failed: 1, Passed: 1},
			[3]int{1, 1, 1},
		},
		"infra": {map[string]string{"a": bash("die"), "b": bash("true")}, eval.Counts{N: 2, InfraFailed: 1, Passed: 1}, [3]int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fake.Options{})
			var kv []string
			for task, text := range c.tasks {
				kv = append(kv, "tasks/"+task+".json", text)
			}
			s, err := r.Run(t.Context(), Request{Source: files(kv...)}, r.rep)
			if err != nil {
				t.Fatal(err)
			}
			r.want(t, "counts", s.Counts, c.counts)
			r.want(t, "exits", [3]int{s.Exit(nil), s.Exit(&half), s.Exit(&most)}, c.exits)
			if len(r.fake.Machines()) != 0 {
				t.Error("sandboxes are left")
			}
		})
	}
}

func TestFailureNamesItsStep(t *testing.T) {
	r := newRig(t, fake.Options{})
	s, err := r.Run(t.Context(), Request{Source: files("tasks/a.json", "["+box+","+strings.Replace(box, `"id": "box"`, `"id": "b2"`, 1)+"]")}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Runs[0].Failures[0].String(); got != "step 'b2': NameError: sandbox 'box' is already deployed in this run" {
		t.Error(got)
	}
}

func TestEvalsAndTrials(t *testing.T) {
	r := newRig(t, fake.Options{})
	src := files("tasks/a.json", bash("true"), "tasks/b.json", bash("no"), "tasks/c.json", bash("true"),
		"evals/e.toml", `tasks = ["a", "b"]`)
	s, err := r.Run(t.Context(), Request{Source: src, K: 2, Concurrency: 1}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, res := range s.Runs {
		order = append(order, fmt.Sprintf("%d/%d %s %d/%d", res.Number, res.Of, res.Label, res.Trial, res.Trials))
	}
	r.want(t, "order", order, []string{"1/4 tasks/a.json 1/2", "2/4 tasks/b.json 1/2", "3/4 tasks/a.json 2/2", "4/4 tasks/b.json 2/2"})
	r.want(t, "left out", s.LeftOut, []string{"tasks/c.json"})
	if len(s.Evals) != 1 {
		t.Fatal(s.Evals)
	}
	e := s.Evals[0]
	r.want(t, "eval", []any{e.ID, e.Label, e.Version, e.Tasks, e.Counts, *e.Mean}, []any{
		"@local/test/b/e", "evals/e.toml", 1,
		[]string{"tasks/a.json", "tasks/b.json"},
		eval.Counts{N: 4, Passed: 2, Scored: 2},
		0.5,
	})
	page, _ := r.Runs.List(t.Context(), runlog.Query{Group: s.Group, Eval: "@local/test/b/e"})
	r.want(t, "runs of the group", len(page.Runs), 4)
}

func TestConcurrencyIsHeld(t *testing.T) {
	for _, c := range []struct{ ask, want int }{{0, DefaultConcurrency}, {2, 2}, {50, 12}} {
		var mu sync.Mutex
		now, most := 0, 0
		r := newRig(t, fake.Options{Programs: map[string]fake.Program{"bash": func(ctx context.Context, p *fake.Proc) guest.Exit {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(30 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return fake.Code(0)
		}}})
		var kv []string
		for i := range 12 {
			kv = append(kv, fmt.Sprintf("tasks/t%d.json", i), bash("x"))
		}
		s, err := r.Run(t.Context(), Request{Source: files(kv...), Concurrency: c.ask}, r.rep)
		if err != nil || s.Passed != 12 || most > c.want || most < min(c.want, 4) {
			t.Errorf("asked %d: %d at once, %+v, %v", c.ask, most, s.Counts, err)
		}
	}
}

func TestCancelTakesDownAndTells(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := newRig(t, fake.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		r.rep.steps = func(ref RunRef, s run.StepStarted) {
			if ref.Label == "tasks/b.json" && s.ID == "v" {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
		}
		src := files("tasks/a.json", bash("true"), "tasks/b.json", bash("hang"), "tasks/c.json", bash("true"))
		s, err := r.Run(ctx, Request{Source: src, Concurrency: 1, Keep: keep}, r.rep)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, res := range s.Runs {
			got = append(got, fmt.Sprintf("%s %s %t", res.Label, res.Status, res.Started))
		}
		r.want(t, "runs", got, []string{"tasks/a.json passed true", "tasks/b.json cancelled true", "tasks/c.json cancelled false"})
		r.want(t, "counts", s.Counts, eval.Counts{N: 3, Passed: 1, Cancelled: 2})
		r.want(t, "down", []any{s.TornDown, len(s.Kept), len(r.fake.Machines()), s.Stopped, s.Exit(nil)}, []any{2, 0, 0, true, 1})
	}
}

func TestKeep(t *testing.T) {
	r := newRig(t, fake.Options{})
	src := files("tasks/a.json", bash("true"), "tasks/b.json", bash("no"))
	s, err := r.Run(t.Context(), Request{Source: src, Keep: true}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, "kept", []any{len(s.Kept), s.TornDown, len(r.fake.Machines())}, []any{2, 0, 2})
	if s.Kept[0].Name != "box" || s.Kept[0].Run != s.Runs[0].ID || s.Kept[0].Box.Tied {
		t.Errorf("%+v", s.Kept[0])
	}
	if err := r.Down(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	r.want(t, "after Down", []any{len(s.Kept), s.TornDown, len(r.fake.Machines())}, []any{0, 2, 0})
}

func TestSandboxThatStaysUpIsNamed(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.Deploy = deploy.New(stuck(r.fake), []string{"local"}, r.Log)
	r.Executors = catalog.New[step.Executor]("executor")
	r.Executors.Add("deploy_sandbox", catalog.Origin{Kind: catalog.Builtin}, world.NewDeploySandbox(r.Deploy))
	s, err := r.Run(t.Context(), Request{Source: files("tasks/a.json", "["+box+"]")}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	id := r.fake.Machines()[0].ID()
	r.want(t, "still up", s.StillUp, []StillUp{{s.Runs[0].ID, id}})
	rec, err := runlog.Load(t.Context(), r.Runs, s.Runs[0].ID)
	if err != nil || !slices.Equal(rec.Left, []string{id}) {
		t.Errorf("%v %v", rec.Left, err)
	}
}

type stuckProvider struct{ *fake.Provider }

func (stuckProvider) Destroy(context.Context, string) error { return errors.New("device busy") }

func stuck(p *fake.Provider) *catalog.Set[sandbox.Provider] {
	s := catalog.New[sandbox.Provider]("sandbox type")
	s.Add("local", catalog.Origin{Kind: catalog.Builtin}, stuckProvider{p})
	return s
}

// deaf is a run log that can't be written.
type deaf struct{ runlog.Log }

func (deaf) Create(context.Context, runlog.Meta) error { return errors.New("disk full") }

func TestRunsThatCannotBeRecordedDontRun(t *testing.T) {
	r := newRig(t, fake.Options{})
	r.Runs = deaf{r.Runs}
	s, err := r.Run(t.Context(), Request{Source: hello()}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, "counts", s.Counts, eval.Counts{N: 1, InfraFailed: 1})
	if f := s.Runs[0].Failures; len(f) != 1 || f[0].Error != "make the run's record: disk full" || len(r.fake.Machines()) != 0 {
		t.Errorf("%+v", f)
	}
}

func TestTwelveRunsAtOnce(t *testing.T) {
	r := newRig(t, fake.Options{})
	var wg sync.WaitGroup
	fresh := make([]int, 12)
	for i := range fresh {
		wg.Go(func() {
			rep := &reporter{}
			s, err := r.Run(t.Context(), Request{Source: hello()}, rep)
			if err != nil || s.Passed != 1 {
				t.Error(s.Counts, err)
			}
			for _, w := range s.Writes {
				if !w.Unchanged {
					fresh[i]++
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(fresh)
	r.want(t, "one writes, the others find it written", fresh, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2})
}

func TestSummaryIsJSON(t *testing.T) {
	r := newRig(t, fake.Options{})
	s, err := r.Run(t.Context(), Request{Source: hello()}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"bundle", "id_root", "group", "writes", "runs", "n", "passed", "infra_failed", "mean_score", "torn_down"} {
		if _, ok := m[k]; !ok {
			t.Errorf("no %s in %s", k, b)
		}
	}
	runs := m["runs"].([]any)[0].(map[string]any)
	for _, k := range []string{"run_id", "task_id", "label", "version", "status", "scores", "seconds", "started", "isolation"} {
		if _, ok := runs[k]; !ok {
			t.Errorf("no runs[0].%s in %s", k, b)
		}
	}
}
