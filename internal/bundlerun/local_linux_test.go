package bundlerun

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/examples"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
	"agentenv.internal/agentenv/internal/sandbox/sandboxtest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/step/world"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// real is an engine as the program has it: namespaces and SQLite.
type real struct {
	*Engine
	rep *reporter
	box *local.Provider
}

func newReal(tb testing.TB) *real {
	tb.Helper()
	return realIn(tb, stateFolder(tb), sqlite.Options{})
}

// stateFolder is a state folder for real sandboxes.
func stateFolder(tb testing.TB) string {
	tb.Helper()
	state := tb.TempDir()
	if err := sandboxtest.ShareTrees(state); err != nil {
		tb.Fatal(err)
	}
	return state
}

// realIn is an engine in a state folder that others may use too.
func realIn(tb testing.TB, state string, o sqlite.Options) *real {
	tb.Helper()
	r, st, err := openReal(state, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		left, err := r.box.List(context.WithoutCancel(tb.Context()))
		if err != nil || len(left) != 0 {
			tb.Errorf("sandboxes are left: %+v %v", left, err)
		}
		if err := r.box.Close(); err != nil {
			tb.Error(err)
		}
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func openReal(state string, o sqlite.Options) (*real, *sqlite.Store, error) {
	boxes, err := local.New(local.Options{StateRoot: state})
	if err != nil {
		return nil, nil, err
	}
	st, err := sqlite.Open(filepath.Join(state, "store"), o)
	if err != nil {
		return nil, nil, err
	}
	builtin := catalog.Origin{Kind: catalog.Builtin}
	set := catalog.New[sandbox.Provider]("sandbox type")
	set.Add("local", builtin, boxes)
	log := slog.New(slog.DiscardHandler)
	d := deploy.New(set, []string{"local"}, log)
	execs := catalog.New[step.Executor]("executor")
	execs.Add("deploy_sandbox", builtin, world.NewDeploySandbox(d))
	execs.Add("teardown_sandboxes", builtin, world.NewTeardownSandboxes(d, nil, nil))
	execs.Add("load_artifact", builtin, data.NewLoadArtifact(st, d, nil, nil, data.NewDownloads(false)))
	execs.Add("run_code", builtin, act.NewRunCode(st, d))
	execs.Add("verify_sandbox", builtin, verify.NewVerifySandbox(d))
	execs.Add("aggregate_verifiers", builtin, verify.NewAggregateVerifiers())
	return &real{rep: &reporter{}, box: boxes, Engine: &Engine{
		Bundle: bundle.Options{Kinds: step.Kinds()}, Executors: execs, Store: st, Runs: st.Runs(), Deploy: d, Log: log,
	}}, st, nil
}

func example(tb testing.TB, name string) bundle.Source {
	tb.Helper()
	sub, err := fs.Sub(examples.FS(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return bundle.Source{FS: sub, Name: name, Root: "agentenv-framework/" + name, IDRoot: ref.InstalledRoot("agentenv-framework", name)}
}

func TestExamplesInRealSandboxes(t *testing.T) {
	r := newReal(t)
	for name, scores := range map[string]map[string]float64{"hello": {"hello": 1}, "wordcount": {"frequent": 1, "whole": 1, "wordcount": 1}} {
		s, err := r.Run(t.Context(), Request{Source: example(t, name)}, r.rep)
		if err != nil {
			t.Fatal(err)
		}
		res := s.Runs[0]
		if res.Status != runlog.Passed || fmt.Sprint(res.Scores) != fmt.Sprint(scores) || res.Isolation != sandbox.LevelNamespaces || s.TornDown != 1 {
			t.Errorf("%s: %+v, torn down %d\n%s", name, res, s.TornDown, logs(t, r, res.ID))
		}
		rec, err := runlog.Load(t.Context(), r.Runs, res.ID)
		if err != nil || len(rec.Boxes) != 1 || !strings.Contains(string(rec.Boxes[0].Isolation), `"probes"`) {
			t.Errorf("%s: %+v %v", name, rec.Boxes, err)
		}
	}
}

// logs are a run's events as text.
func logs(tb testing.TB, r *real, id string) string {
	var b strings.Builder
	for e, err := range r.Runs.Events(context.WithoutCancel(tb.Context()), id, 0) {
		if err != nil {
			return err.Error()
		}
		fmt.Fprintln(&b, e.Kind, e.Step, string(e.Data))
	}
	return b.String()
}

func TestRealSandboxes(t *testing.T) {
	r := newReal(t)
	task := func(criterion string) string {
		return `[` + box + `, {"id": "v", "type": "verify_sandbox", "sandbox_name": "box", "shell_timeout_seconds": 1, "verifier_id": "v", "criteria": [` + criterion + `]}]`
	}
	src := files(
		"tasks/dirs.json", task(`{"type": "bash_cmd_succeeds", "bash_cmd": "test \"$PWD\" = /app && test -z \"$HOME_OF_THE_HOST\" && echo out && echo err >&2"}`),
		"tasks/gone.json", task(`{"type": "probe_file_exists", "paths": ["nosuch", "/etc/passwd/x"]}, {"type": "probe_dir_exists", "paths": ["/etc/passwd"]}`),
		"tasks/loud.json", task(`{"type": "bash_cmd_succeeds", "bash_cmd": "head -c 3000000 /dev/zero; echo the end >&2; exit 3"}`),
		"tasks/slow.json", task(`{"type": "bash_cmd_succeeds", "bash_cmd": "setsid sleep 600 & sleep 600"}`),
		"tasks/daemon.json", task(`{"type": "bash_cmd_succeeds", "bash_cmd": "sleep 600 &"}`),
		"tasks/nobase.json", strings.Replace(task(`{"type": "bash_cmd_succeeds", "bash_cmd": "true"}`), `"sandbox_name": "box", "shell`, `"sandbox_name": "box", "base_dir": "/nowhere", "shell`, 1),
		"tasks/quit.json", task(`{"type": "bash_cmd_succeeds", "bash_cmd": "kill -KILL $$"}`),
	)
	s, err := r.Run(t.Context(), Request{Source: src}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"tasks/dirs.json": "exit 0", "tasks/loud.json": "exit 3: the end", "tasks/slow.json": "timed out after 1s", "tasks/daemon.json": "exit 0",
		"tasks/nobase.json": "the command can't be started: does not exist", "tasks/quit.json": "exit 137",
		"tasks/gone.json": "'nosuch': does not exist; '/etc/passwd/x': not a directory|'/etc/passwd': not a folder",
	}
	for _, res := range s.Runs {
		rec, err := runlog.Load(t.Context(), r.Runs, res.ID)
		if err != nil {
			t.Fatal(err)
		}
		var why []string
		for _, row := range verification(t, rec.Verified["v"]).Results {
			why = append(why, fmt.Sprint(row["justification"]))
		}
		if got := strings.Join(why, "|"); got != want[res.Label] {
			t.Errorf("%s: %s, want %s\n%s", res.Label, got, want[res.Label], logs(t, r, res.ID))
		}
	}
	if s.TornDown != len(s.Runs) || len(s.StillUp) != 0 {
		t.Errorf("%d torn down of %d, %v", s.TornDown, len(s.Runs), s.StillUp)
	}
}

func verification(tb testing.TB, raw json.RawMessage) step.Verification {
	tb.Helper()
	var v step.Verification
	if err := json.Unmarshal(raw, &v); err != nil {
		tb.Errorf("%s: %v", raw, err)
	}
	return v
}

func TestKilledSandboxIsInfra(t *testing.T) {
	r := newReal(t)
	r.rep.steps = func(_ RunRef, st run.StepStarted) {
		if st.ID != "v" {
			return
		}
		boxes, err := r.box.List(t.Context())
		if err != nil || len(boxes) != 1 {
			t.Error(boxes, err)
			return
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = r.box.Destroy(context.WithoutCancel(t.Context()), boxes[0].ID) })
	}
	s, err := r.Run(t.Context(), Request{Source: files("tasks/a.json", bash("sleep 600"))}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	if res := s.Runs[0]; res.Status != runlog.InfraFailed || len(res.Scores) != 0 || res.Failures[0].ErrorType != "SandboxGone" {
		t.Errorf("%+v\n%s", res, logs(t, r, res.ID))
	}
}

func TestCancelledRunLeavesNothing(t *testing.T) {
	r := newReal(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.rep.steps = func(_ RunRef, st run.StepStarted) {
		if st.ID == "v" {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	}
	began := time.Now()
	s, err := r.Run(ctx, Request{Source: files("tasks/a.json", bash("setsid sleep 600 & sleep 600"))}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	if s.Runs[0].Status != runlog.Cancelled || s.TornDown != 1 || time.Since(began) > 5*time.Second {
		t.Errorf("%+v in %s", s.Runs[0], time.Since(began))
	}
}

// TestDeadlineReachesEveryDescendant lets a step run out of time with children in sessions of their own, and looks for them in the next step.
func TestDeadlineReachesEveryDescendant(t *testing.T) {
	r := newReal(t)
	steps := `[` + box + `,
		{"id": "late", "type": "verify_sandbox", "sandbox_name": "box", "timeout_seconds": 0.5, "fail_task_on_error": false,
		 "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "setsid sleep 601 & (setsid sh -c 'sleep 602 & sleep 603' &) & sleep 604"}]},
		{"id": "look", "type": "verify_sandbox", "sandbox_name": "box",
		 "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "! grep -l -a 'sleep.60[1234]' /proc/[0-9]*/cmdline | grep -v self | grep -v /$$/"}]}]`
	s, err := r.Run(t.Context(), Request{Source: files("tasks/a.json", steps)}, r.rep)
	if err != nil {
		t.Fatal(err)
	}
	res := s.Runs[0]
	if res.Status != runlog.Failed || len(res.Failures) != 1 || res.Failures[0].ErrorType != "TimeoutError" || res.Scores["look"] != 1 {
		t.Errorf("%+v\n%s", res, logs(t, r, res.ID))
	}
}

// BenchmarkChain runs 500 chained commands in one sandbox; BenchmarkBare is the same number of commands without a task.
func BenchmarkChain500(b *testing.B) {
	r := newReal(b)
	steps := []string{box}
	for i := range 500 {
		steps = append(steps, fmt.Sprintf(`{"id": "v%d", "type": "verify_sandbox", "sandbox_name": "box", "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}]}`, i))
	}
	src := files("tasks/chain.json", "["+strings.Join(steps, ",")+"]")
	for b.Loop() {
		s, err := r.Run(b.Context(), Request{Source: src}, &reporter{})
		if err != nil || s.Passed != 1 {
			b.Fatal(s.Counts, err)
		}
	}
}

func BenchmarkHello(b *testing.B) {
	r := newReal(b)
	for b.Loop() {
		s, err := r.Run(b.Context(), Request{Source: example(b, "hello")}, &reporter{})
		if err != nil || s.Passed != 1 {
			b.Fatal(s.Counts, err)
		}
	}
}
