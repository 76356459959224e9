package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner keeps the events that a run appends, as a store would.
type owner struct {
	mu       sync.Mutex
	events   []runlog.Event
	renewals atomic.Int32
	requests chan runlog.Request
	refuse   func(runlog.Event) error
	renewErr error
}

func (o *owner) Epoch() uint64 { return 1 }

func (o *owner) Append(_ context.Context, es ...runlog.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range es {
		if o.refuse != nil {
			if err := o.refuse(e); err != nil {
				return err
			}
		}
	}
	o.events = append(o.events, es...)
	return nil
}

func (o *owner) Renew(context.Context) error     { o.renewals.Add(1); return o.renewErr }
func (o *owner) Requests() <-chan runlog.Request { return o.requests }
func (o *owner) Release(context.Context) error   { return nil }

// text is the events in short: "start a", "end a succeeded", "log a message".
func (o *owner) text() []string {
	var out []string
	for _, e := range o.events {
		switch e.Kind {
		case runlog.StepStarted:
			out = append(out, fmt.Sprintf("start %s %d", e.Step, e.Attempt))
		case runlog.StepEnded:
			var end runlog.StepEnd
			_ = json.Unmarshal(e.Data, &end)
			out = append(out, fmt.Sprintf("end %s %s", e.Step, end.Status))
		case runlog.StepLog:
			var line runlog.LogLine
			_ = json.Unmarshal(e.Data, &line)
			out = append(out, fmt.Sprintf("log %s %s %s %v", e.Step, line.Level, line.Message, line.Attrs))
		default:
			out = append(out, e.Kind)
		}
	}
	return out
}

// world counts what a run asks of it.
type world struct {
	mu       sync.Mutex
	policy   deploy.Policy
	undone   []string
	reopened []deploy.Known
	downs    int
	onDown   func()
	gone     deploy.Gone
}

func (w *world) Open(_ string, p deploy.Policy) { w.policy = p }

func (w *world) Undo(_ context.Context, _ string, steps ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone = append(w.undone, steps...)
	return nil
}

func (w *world) Reopen(_ context.Context, _ string, keep []deploy.Known) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopened = append(w.reopened, keep...)
	return nil
}

func (w *world) Down(ctx context.Context, _ string) (deploy.Gone, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.downs++
	if w.onDown != nil {
		w.onDown()
	}
	return w.gone, nil
}

type executor func(ctx context.Context, c *step.Call) error

func (f executor) Run(ctx context.Context, c *step.Call) error { return f(ctx, c) }

// rig is a task under test: every step has a type of its own name.
type rig struct {
	steps []task.Step
	set   *catalog.Set[step.Executor]
	owner *owner
	world *world
	keep  bool
	watch Watcher
}

func newRig() *rig {
	return &rig{set: catalog.New[step.Executor]("step type"), owner: &owner{}, world: &world{}}
}

// add puts a step into the task. deps are ids; "*" means all before it.
func (r *rig) add(id string, deps string, f executor, opts ...func(*task.Step)) *rig {
	st := task.Step{ID: id, Type: id, Doc: doc.Build(map[string]any{"id": id, "type": id})}
	for d := range strings.FieldsSeq(deps) {
		for i := range r.steps {
			if d == "*" || r.steps[i].ID == d {
				st.Deps = append(st.Deps, i)
			}
		}
	}
	for _, o := range opts {
		o(&st)
	}
	r.steps = append(r.steps, st)
	if f == nil {
		f = func(context.Context, *step.Call) error { return nil }
	}
	r.set.Add(id, catalog.Origin{Kind: catalog.Builtin}, f)
	return r
}

func tolerated(s *task.Step)                 { s.Tolerated = true }
func always(s *task.Step)                    { s.Always = true }
func limit(d time.Duration) func(*task.Step) { return func(s *task.Step) { s.Timeout = d } }
func again(from, n int, backoff time.Duration) func(*task.Step) {
	return func(s *task.Step) { s.Retry = &task.Retry{From: from, Max: n, Backoff: backoff} }
}

func (r *rig) run(ctx context.Context) (Result, error) {
	runner := &Runner{Executors: r.set, World: r.world, Log: slog.New(slog.DiscardHandler)}
	return runner.Run(ctx, Request{
		Run: "@local/b/t-12345678", Task: &task.Task{ID: "@local/b/t", Steps: r.steps}, Owner: r.owner,
		Policy: deploy.Policy{Keep: r.keep}, Watch: r.watch,
	})
}

func fails(text string) executor {
	return func(context.Context, *step.Call) error { return errors.New(text) }
}

func sleeps(d time.Duration) executor {
	return func(ctx context.Context, _ *step.Call) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func score(id string, v float64) executor {
	return func(_ context.Context, c *step.Call) error {
		return c.Out.Set(step.VerificationsPath+"/"+id, step.Verification{Step: c.Step, Score: v})
	}
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestChainRunsInOrderAndSeesItsAncestors(t *testing.T) {
	r := newRig()
	r.add("a", "", func(_ context.Context, c *step.Call) error { return c.Out.Set("metadata/x", "from a") })
	r.add("side", "", func(_ context.Context, c *step.Call) error { return c.Out.Set("metadata/y", "from side") })
	r.add("b", "a", func(_ context.Context, c *step.Call) error {
		var x, y string
		if ok, err := c.State.Get("metadata/x", &x); !ok || err != nil || x != "from a" {
			return fmt.Errorf("metadata/x is %q, %w", x, err)
		}
		if ok, _ := c.State.Get("metadata/y", &y); ok {
			return errors.New("sees a step that it doesn't depend on")
		}
		c.Log.Info("hello", "n", 1, "d", time.Second)
		return nil
	})
	res, err := r.run(t.Context())
	if err != nil || res.Status != runlog.Unscored {
		t.Fatalf("%+v, %v", res, err)
	}
	text := r.owner.text()
	want(t, "first", text[0], runlog.RunStarted)
	want(t, "last", text[len(text)-1], runlog.RunEnded)
	at := func(s string) int { return slices.Index(text, s) }
	if !(at("end a succeeded") < at("start b 1") && at("start b 1") < at("log b info hello map[d:1s n:1]") &&
		at("log b info hello map[d:1s n:1]") < at("end b succeeded")) || at("start side 1") > at("end a succeeded") {
		t.Errorf("order: %q", text)
	}
	want(t, "downs", r.world.downs, 1)
}

func TestReadyStepsStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		for i := range 50 {
			r.add(fmt.Sprint("s", i), "", sleeps(200*time.Millisecond))
		}
		began := time.Now()
		if res, err := r.run(t.Context()); err != nil || res.Status != runlog.Unscored {
			t.Fatal(res, err)
		}
		want(t, "took", time.Since(began), 200*time.Millisecond)
	})
}

func TestFatalFailureLetsInFlightEndAndSkipsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("bad", "", func(context.Context, *step.Call) error {
			time.Sleep(time.Second)
			return step.Errorf("ValueError", "it broke")
		})
		r.add("slow", "", sleeps(3*time.Second))
		r.add("afterSlow", "slow", nil)
		r.add("afterBad", "bad", nil)
		res, err := r.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", res.Status, runlog.Failed)
		want(t, "failures", res.Failures, []Failure{{Step: "bad", Type: "bad", ErrorType: "ValueError", Error: "it broke", Fatal: true}})
		want(t, "in words", res.Failures[0].String(), "step 'bad': ValueError: it broke")
		want(t, "events", r.owner.text(), []string{
			"run.started", "start bad 1", "start slow 1", "end bad failed", "end afterBad skipped", "end slow succeeded", "end afterSlow skipped", "run.ended",
		})
		want(t, "seconds", res.Seconds, 3)
	})
}

func TestToleratedFailure(t *testing.T) {
	r := newRig()
	r.add("a", "", func(_ context.Context, c *step.Call) error {
		_ = c.Out.Set("metadata/x", 1)
		return errors.New("no")
	}, tolerated)
	seen := true
	r.add("b", "a", func(_ context.Context, c *step.Call) error {
		var x int
		seen, _ = c.State.Get("metadata/x", &x)
		return score("v", 1)(context.Background(), c)
	})
	res, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "status", res.Status, runlog.Failed)
	want(t, "the diff of a failed step is dropped", seen, false)
	want(t, "dependents run", res.Scores, map[string]float64{"v": 1})
}

// TestKeptFailure: what a failed step keeps is seen by those after it, and on record.
func TestKeptFailure(t *testing.T) {
	r := newRig()
	r.add("a", "", func(_ context.Context, c *step.Call) error {
		_ = c.Out.Set("metadata/x", 7)
		return step.Keep(step.Errorf("agent_error", "no"))
	}, tolerated)
	x := 0
	r.add("b", "a", func(_ context.Context, c *step.Call) error {
		_, err := c.State.Get("metadata/x", &x)
		return err
	})
	res, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "status", res.Status, runlog.Failed)
	want(t, "failure", res.Failures[0].ErrorType, "agent_error")
	want(t, "seen", x, 7)
	for _, e := range r.owner.events {
		if e.Kind == runlog.StepEnded && e.Step == "a" {
			want(t, "recorded", strings.Contains(string(e.Data), `"metadata/x"`), true)
		}
	}
	want(t, "fatal", res.Failures[0].Fatal, false)
}

func TestAlways(t *testing.T) {
	r := newRig()
	r.add("bad", "", fails("no"))
	r.add("collect", "*", nil, always)
	r.add("between", "*", nil)
	r.add("last", "*", nil, always)
	res, _ := r.run(t.Context())
	want(t, "status", res.Status, runlog.Failed)
	want(t, "events", r.owner.text(), []string{
		"run.started", "start bad 1", "end bad failed", "start collect 1", "end collect succeeded", "end between skipped",
		"start last 1", "end last succeeded", "run.ended",
	})
}

func TestAlwaysWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("bad", "", fails("no"))
		r.add("slow", "", sleeps(time.Second))
		r.add("mid", "bad slow", nil)
		r.add("collect", "bad slow mid", nil, always)
		_, _ = r.run(t.Context())
		want(t, "events", r.owner.text(), []string{
			"run.started", "start bad 1", "start slow 1", "end bad failed", "end slow succeeded", "end mid skipped",
			"start collect 1", "end collect succeeded", "run.ended",
		})
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("slow", "", sleeps(time.Hour), limit(1500*time.Millisecond))
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Failed)
		want(t, "failure", res.Failures[0].String(), "step 'slow': TimeoutError: timed out after 1.5s")
		want(t, "seconds", res.Seconds, 1.5)
	})
}

// A step whose time is up tells what it was waiting for.
func TestTimeoutTellsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("slow", "", func(ctx context.Context, _ *step.Call) error {
			<-ctx.Done()
			return fmt.Errorf("deploy: %w", &step.Halted{Err: ctx.Err(), State: "server 'mail': no card yet"})
		}, limit(time.Second))
		res, _ := r.run(t.Context())
		want(t, "failure", res.Failures[0].String(), "step 'slow': TimeoutError: timed out after 1s; server 'mail': no card yet")
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("done", "", score("v", 1))
		r.add("slow", "done", sleeps(time.Hour))
		r.add("collect", "slow", nil, always)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r.keep = true // a cancelled run keeps nothing
		res, err := r.run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", res.Status, runlog.Cancelled)
		want(t, "no scores", len(res.Scores), 0)
		want(t, "events", r.owner.text(), []string{
			"run.started", "start done 1", "end done succeeded", "start slow 1", "run.cancelling",
			"end slow cancelled", "end collect skipped", "run.ended",
		})
		want(t, "downs", r.world.downs, 1)
	})
}

func TestStepThatWillNotEndLosesItsWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		gone := make(chan struct{})
		r.world.onDown = sync.OnceFunc(func() { close(gone) })
		r.add("deaf", "", func(context.Context, *step.Call) error { <-gone; return guest.ErrGone })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		res, err := r.run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", res.Status, runlog.Cancelled)
		want(t, "seconds", res.Seconds, (time.Second + graceDown).Seconds())
	})
}

func TestCancelRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.owner.requests = make(chan runlog.Request, 1)
		r.add("slow", "", sleeps(time.Hour))
		time.AfterFunc(12*time.Second, func() { r.owner.requests <- runlog.Request{Kind: "cancel"} })
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Cancelled)
		want(t, "renewals in 12 s", r.owner.renewals.Load(), 2)
	})
}

func TestFenced(t *testing.T) {
	for name, set := range map[string]func(*owner){
		"at an append": func(o *owner) {
			o.refuse = func(e runlog.Event) error {
				if e.Step == "b" {
					return runlog.ErrFenced
				}
				return nil
			}
		},
		"at a renewal": func(o *owner) { o.renewErr = runlog.ErrFenced },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				set(r.owner)
				r.keep = true
				ran := false
				r.add("a", "", sleeps(6*time.Second))
				r.add("b", "a", func(context.Context, *step.Call) error { ran = true; return nil })
				res, err := r.run(t.Context())
				if !errors.Is(err, runlog.ErrFenced) {
					t.Errorf("error %v", err)
				}
				want(t, "status", res.Status, runlog.InfraFailed)
				want(t, "b ran", ran, false)
				want(t, "a world that another owner may use is left to it", r.world.downs, 0)
			})
		})
	}
}

// A disk that fills during a run must not lose a score that was told as passed.
func TestEndThatIsNotRecordedIsNoScore(t *testing.T) {
	full := errors.New("no space left on device")
	for _, kind := range []string{runlog.RunEnded, runlog.StepEnded} {
		r := newRig()
		r.owner.refuse = func(e runlog.Event) error {
			if e.Kind == kind {
				return full
			}
			return nil
		}
		r.add("v", "", score("v", 1))
		res, err := r.run(t.Context())
		if !errors.Is(err, full) {
			t.Errorf("%s: error %v", kind, err)
		}
		want(t, kind+": status", res.Status, runlog.InfraFailed)
		want(t, kind+": scores", len(res.Scores), 0)
		want(t, kind+": failures", len(res.Failures), 1)
		want(t, kind+": what decides", res.Failures[0].ErrorType, "RecordError")
		want(t, kind+": the world", r.world.downs, 1)
	}
}

func TestInfraNeverScores(t *testing.T) {
	for name, f := range map[string]executor{
		"gone":   func(context.Context, *step.Call) error { return fmt.Errorf("exec: %w", guest.ErrGone) },
		"marked": func(context.Context, *step.Call) error { return step.Infra(errors.New("no route")) },
		"panic":  func(context.Context, *step.Call) error { panic("secret detail") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.add("v", "", score("v", 1))
			r.add("bad", "v", fails("the task's own failure"), tolerated)
			r.add("infra", "v", f, tolerated)
			res, _ := r.run(t.Context())
			want(t, "status", res.Status, runlog.InfraFailed)
			want(t, "scores", len(res.Scores), 0)
			want(t, "decides", res.Failures[0].Step, "infra")
			if s := res.Failures[0].String(); strings.Contains(s, "secret") || strings.Contains(s, "goroutine") {
				t.Error(s)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		scores []float64
		want   runlog.Status
	}{
		{nil, runlog.Unscored},
		{[]float64{1}, runlog.Passed},
		{[]float64{1, 1.5}, runlog.Passed},
		{[]float64{1, 0.999}, runlog.Scored},
		{[]float64{0}, runlog.Scored},
	} {
		r := newRig()
		for i, v := range c.scores {
			r.add(fmt.Sprint("v", i), "", score(fmt.Sprint("v", i), v))
		}
		res, err := r.run(t.Context())
		if err != nil || res.Status != c.want || len(res.Scores) != len(c.scores) {
			t.Errorf("%v: %+v, %v", c.scores, res, err)
		}
	}
}

func TestScoresOfOddNames(t *testing.T) {
	r := newRig()
	for i, id := range []string{"a/b", "100%", "%2F"} {
		r.add(fmt.Sprint("v", i), "", func(_ context.Context, c *step.Call) error {
			return c.Out.Set(step.Child(step.VerificationsPath, id), step.Verification{Step: c.Step, Score: 1})
		})
	}
	res, _ := r.run(t.Context())
	want(t, "scores", res.Scores, map[string]float64{"a/b": 1, "100%": 1, "%2F": 1})
	rec := runlog.Fold(runlog.Summary{}, r.owner.events)
	want(t, "names in the record", slices.Sorted(maps.Keys(rec.Verified)), []string{"%2F", "100%", "a/b"})
}

func TestKeepLeavesTheWorld(t *testing.T) {
	r := newRig()
	r.keep = true
	r.add("a", "", nil)
	_, _ = r.run(t.Context())
	want(t, "downs", r.world.downs, 0)
	want(t, "policy", r.world.policy.Keep, true)
}

func TestIsolationIsTheWeakestSeen(t *testing.T) {
	r := newRig()
	r.add("a", "", func(context.Context, *step.Call) error {
		o := r.world.policy.Observer
		o.BoxCreated("s", "one", sandbox.Info{ID: "1", Isolation: sandbox.Isolation{Level: sandbox.LevelContainer}})
		o.BoxCreated("s", "two", sandbox.Info{ID: "2", Isolation: sandbox.Isolation{Level: sandbox.LevelNamespaces}})
		o.BoxRemoved("s", "two", sandbox.Info{ID: "2"}, errors.New("busy"))
		o.BoxRemoved("s", "one", sandbox.Info{ID: "1", Blocked: []guest.Blocked{{Proto: "dns", Host: "evil.test", Why: "no", Count: 10}}}, nil)
		return nil
	})
	res, _ := r.run(t.Context())
	want(t, "isolation", res.Isolation, sandbox.LevelNamespaces)
	var boxes []string
	for _, e := range r.owner.events {
		if strings.HasPrefix(e.Kind, "box.") {
			boxes = append(boxes, e.Kind+" "+string(e.Data))
		}
	}
	want(t, "box events", strings.Join(boxes, "\n"), `box.created {"id":"1","name":"one","provider":"","step":"s","isolation":{"level":"container"}}
box.created {"id":"2","name":"two","provider":"","step":"s","isolation":{"level":"namespaces"}}
box.removed {"id":"2","name":"two","provider":"","step":"s","error":"busy"}
box.removed {"id":"1","name":"one","provider":"","step":"s","blocked":[{"time":"0001-01-01T00:00:00Z","proto":"dns","host":"evil.test","why":"no","count":10}]}`)
}

func TestPreflightTellsAllAtOnce(t *testing.T) {
	r := newRig()
	r.add("ok", "", nil)
	r.set.Add("picky", catalog.Origin{Kind: catalog.Builtin}, picky{})
	tree := func(typ string) doc.Node { return doc.Build(map[string]any{"type": typ}) }
	tk := &task.Task{Steps: []task.Step{
		{ID: "e1", Type: "deploy_env", Doc: tree("deploy_env")},
		{ID: "p", Type: "picky", Doc: tree("picky")},
		{ID: "p2", Type: "picky", Doc: tree("picky")},
		{ID: "e2", Type: "deploy_env", Doc: tree("deploy_env")},
		{ID: "e3", Type: "deploy_env", Doc: tree("deploy_env")},
		{ID: "r", Type: "review", Doc: tree("review")},
		{ID: "fine", Type: "ok", Doc: tree("ok")},
	}}
	runner := &Runner{Executors: r.set, World: r.world, Log: slog.New(slog.DiscardHandler)}
	l := runner.Preflight(t.Context(), tk, "tasks/t.json", step.Plan{})
	want(t, "problems", l.Err().Error(), `tasks/t.json: step 'e1': deploy_env steps are checked but can't be run by this version of agent-env (and 2 more steps); those it runs are ok, picky
tasks/t.json: step 'p': colour: no such colour (and 1 more step)
tasks/t.json: step 'r': review steps are checked but can't be run by this version of agent-env; those it runs are ok, picky`)
}

func TestPreflightOfNames(t *testing.T) {
	kinds := step.Kinds()
	set := catalog.New[step.Executor]("executor")
	for _, typ := range kinds.Names() {
		set.Add(typ, catalog.Origin{Kind: catalog.Builtin}, executor(func(context.Context, *step.Call) error { return nil }))
	}
	runner := &Runner{Executors: set, World: &world{}, Log: slog.New(slog.DiscardHandler)}
	tree, l := doc.ParseJSON("tasks/t.json", []byte(`[
		{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
		{"id": "a", "type": "verify_sandbox", "sandbox_name": "bux"},
		{"id": "b", "type": "verify_sandbox", "sandbox_name": " box ", "verifier_id": "a"},
		{"id": "c", "type": "verify_sandbox", "sandbox_name": "box", "depends_on": []},
		{"id": "d", "type": "verify_sandbox", "agent_name": "x", "depends_on": ["b"]},
		{"id": "e", "type": "teardown_sandboxes", "sandbox_names": ["box", "elsewhere"]}]`))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	tk, l := task.Decode("@local/b/t", tree.Root(), kinds, task.Options{})
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	var got []string
	for _, p := range runner.Preflight(t.Context(), tk, "tasks/t.json", step.Plan{}) {
		got = append(got, fmt.Sprint(p.Severity, " ", p))
	}
	want(t, "problems", strings.Join(got, "\n"), `1 tasks/t.json: step 'b': its score is called 'a', as that of step 'a', and takes its place; give each a verifier_id of its own (line 4)
0 tasks/t.json: step 'a': sandbox_name: no deploy_sandbox step of this task makes a sandbox called 'bux'; did you mean 'box'? (line 3)
1 tasks/t.json: step 'c': sandbox_name: doesn't wait for step 'box', which makes the sandbox 'box'; name that step in depends_on (line 5)
1 tasks/t.json: step 'e': sandbox_names[1]: no deploy_sandbox step of this task makes a sandbox called 'elsewhere'; those it makes are box (line 7)`)
	set.Add("custom", catalog.Origin{Kind: catalog.Distribution}, executor(func(context.Context, *step.Call) error { return nil }))
	tk.Steps = append(tk.Steps, task.Step{ID: "own", Type: "custom"}) // which may deploy sandboxes
	if l := runner.Preflight(t.Context(), tk, "tasks/t.json", step.Plan{}); len(l) != 0 {
		t.Error(l)
	}
}

type picky struct{}

func (picky) Run(context.Context, *step.Call) error { return nil }
func (picky) Preflight(context.Context, doc.Node, step.Plan) diag.List {
	return diag.List{{Where: "colour", Summary: "no such colour"}}
}
