package bundlerun

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
	"time"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/world"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/internal/taskstore"
)

// place is what processes share: a store, a machine's sandboxes, a clock.
type place struct {
	store *mem.Store
	fake  *fake.Provider
	ahead atomic.Int64 // of the clock
	execs map[string]step.Executor
}

func newPlace(t *testing.T) *place {
	p := &place{fake: fake.New(fake.Options{}), execs: map[string]step.Executor{}}
	p.store = mem.New(mem.Options{Now: func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }})
	t.Cleanup(func() { _ = p.fake.Close() })
	return p
}

// process is an engine as a new process has it. With n >= 0 it dies as it appends its event n, counted from 0.
func (p *place) process(n int) *Engine {
	boxes := catalog.New[sandbox.Provider]("sandbox type")
	builtin := catalog.Origin{Kind: catalog.Builtin}
	boxes.Add("local", builtin, p.fake)
	log := slog.New(slog.DiscardHandler)
	d := deploy.New(boxes, []string{"local"}, log)
	execs := catalog.New[step.Executor]("executor")
	execs.Add("deploy_sandbox", builtin, world.NewDeploySandbox(d))
	execs.Add("teardown_sandboxes", builtin, world.NewTeardownSandboxes(d, nil, nil))
	execs.Add("verify_sandbox", builtin, acting{d})
	if p.execs["aggregate_verifiers"] == nil {
		execs.Add("aggregate_verifiers", builtin, acting{})
	}
	for name, e := range p.execs {
		execs.Add(name, builtin, e)
	}
	e := &Engine{Bundle: bundle.Options{Kinds: step.Kinds()}, Executors: execs, Store: p.store, Runs: p.store.Runs(), Deploy: d, Log: log}
	if n >= 0 {
		m := &mortal{Log: e.Runs}
		m.left.Store(int64(n))
		e.Runs = m
	}
	return e
}

// mortal is a log whose owners die after so many events, one by one, wherever in a batch that is.
type mortal struct {
	runlog.Log
	left atomic.Int64
}

func (m *mortal) Claim(ctx context.Context, run string) (runlog.Owner, error) {
	o, err := m.Log.Claim(ctx, run)
	return &dying{Owner: o, m: m}, err
}

type dying struct {
	runlog.Owner
	m *mortal
}

func (d *dying) Append(ctx context.Context, es ...runlog.Event) error {
	for _, e := range es {
		if d.m.left.Add(-1) < 0 {
			return runlog.ErrFenced // as far as the process can tell: it writes nothing more and touches nothing more
		}
		if err := d.Owner.Append(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// Release is what a dead process doesn't do.
func (d *dying) Release(context.Context) error { return nil }

// acting is an executor whose steps do what their id says, leave a trace for the steps after them, and a score.
type acting struct{ boxes step.Boxes }

func (a acting) Run(ctx context.Context, c *step.Call) error {
	if a.boxes != nil {
		box, err := a.boxes.Box(ctx, c.Run, c.Doc.Get("sandbox_name").Text())
		if err != nil {
			return step.Infra(err)
		}
		// What a step does to the world must be there for those after it: each finds the marks of its ancestors.
		for _, b := range c.State.List("metadata/marks") {
			var id string
			_ = json.Unmarshal(b, &id)
			if _, err := box.Stat(ctx, "/app/"+id); err != nil {
				return fmt.Errorf("the mark of %s is not in the world: %w", id, err)
			}
		}
		if err := guest.Put(ctx, box, "/app", []guest.PutFile{guest.PutBytes(c.Step, 0o644, []byte(c.Step))}); err != nil {
			return err
		}
		if err := c.Out.Append("metadata/marks", c.Step); err != nil {
			return err
		}
	}
	c.Log.Info("at work", "attempt", c.Attempt)
	switch {
	case strings.HasPrefix(c.Step, "flaky") && c.Attempt == 1:
		return errors.New("not the first time")
	case strings.HasPrefix(c.Step, "bad"):
		return errors.New("never")
	}
	c.Spent(step.Cost{USD: 0.5})
	if err := c.Out.Append("metadata/trace", c.Step); err != nil {
		return err
	}
	return c.Out.Set(step.Child(step.VerificationsPath, c.Step), step.Verification{Score: float64(len(c.State.List("metadata/trace"))) / 10})
}

const (
	deployStep = `{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "depends_on": []}`
	inBox      = `{"type": "verify_sandbox", "sandbox_name": "box", "criteria": [], `
	noBox      = `{"type": "aggregate_verifiers", "verifier_ids": [], `
)

// lives are tasks with everything in them that a kill can come between.
var lives = map[string]string{
	"plain": `[` + deployStep + `,` + inBox + `"id": "one"},` + noBox + `"id": "sum"},` + inBox + `"id": "two"},` + noBox + `"id": "all"}]`,
	"retry": `[` + deployStep + `,` +
		inBox + `"id": "side", "depends_on": ["box"]},` +
		inBox + `"id": "load", "depends_on": ["box"]},` +
		inBox + `"id": "flaky", "depends_on": ["load"], "retry_config": {"retry_from_step_id": "load", "max_retries": 2}},` +
		noBox + `"id": "flaky2", "depends_on": ["side"], "retry_config": {"retry_from_step_id": "flaky2"}},` +
		noBox + `"id": "end"}]`,
	"rebuild": `[` + deployStep + `,` + noBox + `"id": "apart", "depends_on": []},` +
		inBox + `"id": "flaky", "depends_on": ["box"], "retry_config": {"retry_from_step_id": "box"}},` + noBox + `"id": "end"}]`,
	"tolerated": `[` + deployStep + `,` + inBox + `"id": "bad", "fail_task_on_error": false},` + inBox + `"id": "two"}]`,
	"fatal": `[` + deployStep + `,` + inBox + `"id": "bad"},` + inBox + `"id": "two"},` +
		noBox + `"id": "collect", "always": true},` +
		`{"id": "down", "type": "teardown_sandboxes", "sandbox_names": ["box"], "fail_task_on_error": false, "always": true}]`,
	"torn down": `[` + deployStep + `,` + inBox + `"id": "one"},` +
		`{"id": "down", "type": "teardown_sandboxes", "sandbox_names": ["box"], "fail_task_on_error": false},` + noBox + `"id": "end"}]`,
}

// outcome is what a run amounts to, whatever its history.
type outcome struct {
	Status runlog.Status
	Steps  string
	Scores string
	Error  string
}

func (p *place) outcome(t *testing.T, id string) outcome {
	t.Helper()
	rec, err := runlog.Load(t.Context(), p.store.Runs(), id)
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{Status: rec.Status, Error: rec.Error, Scores: fmt.Sprint(rec.Scores)}
	for _, st := range rec.Steps {
		o.Steps += fmt.Sprintf("%s %s %s; ", st.ID, st.Status, st.Error)
	}
	return o
}

func (p *place) put(t *testing.T, id, steps string) taskstore.TaskRef {
	t.Helper()
	tree, l := doc.ParseJSON("task", []byte(steps))
	if l.HasErrors() {
		t.Fatal(l)
	}
	w, l, err := taskstore.New(p.store, step.Kinds()).CreateTask(t.Context(), id, tree.Root(), task.Options{})
	if err != nil || l.HasErrors() {
		t.Fatal(err, l)
	}
	return taskstore.TaskRef{ID: id, Version: w.Version}
}

// live runs a task in a process that dies at its event n and answers the run.
func (p *place) live(t *testing.T, ref taskstore.TaskRef, o runlog.Options, n int) RunResult {
	t.Helper()
	e := p.process(n)
	s, err := e.RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}, Options: o}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	p.ahead.Add(int64(time.Hour)) // nobody renews any more
	return s.Runs[0]
}

func (p *place) events(t *testing.T, id string) int {
	n := 0
	for _, err := range p.store.Runs().Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestKillAtEveryEvent kills a run's owner at each event that it appends, resumes the run in another process, which is killed too, and compares what
// comes out in the end with a run that nobody disturbed.
func TestKillAtEveryEvent(t *testing.T) {
	for name, steps := range lives {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s keep=%v", name, keep), func(t *testing.T) {
				p := newPlace(t)
				ref := p.put(t, "@local/t", steps)
				o := runlog.Options{Keep: keep}
				whole := p.live(t, ref, o, -1)
				want := p.outcome(t, whole.ID)
				total := p.events(t, whole.ID)
				up := len(p.fake.Machines()) // kept by each run that comes to its end
				for n := range total + 1 {
					for _, second := range []int{0, 1, 3, 1 << 30} {
						if second != 1<<30 && n%3 != 0 {
							continue // one kill at every event, two at every third
						}
						before := len(p.fake.Machines())
						p.killTwice(t, ref, o, n, second, want)
						if now := len(p.fake.Machines()); now-before != up {
							t.Fatalf("killed at %d and %d: %d sandboxes are left, not %d", n, second, now-before, up)
						}
					}
				}
			})
		}
	}
}

func (p *place) killTwice(t *testing.T, ref taskstore.TaskRef, o runlog.Options, n, second int, want outcome) {
	t.Helper()
	id := p.live(t, ref, o, n).ID
	if sum, err := p.store.Runs().Get(t.Context(), id); err != nil || sum.Status.Ended() {
		if _, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{}, &reporter{}); !errors.Is(err, runlog.ErrEnded) {
			t.Fatalf("an ended run was resumed: %v", err)
		}
		return
	}
	explained, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{Explain: true}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	at := p.events(t, id)
	first, err := p.process(second).Resume(t.Context(), id, ResumeOptions{}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(explained.Steps, first.Steps) {
		t.Fatalf("explained %v\nbut did %v", explained.Steps, first.Steps)
	}
	p.ahead.Add(int64(time.Hour))
	if sum, err := p.store.Runs().Get(t.Context(), id); err != nil || !sum.Status.Ended() {
		if _, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{}, &reporter{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.outcome(t, id); got != want {
		t.Fatalf("killed at %d and %d (%d on record):\n got %+v\nwant %+v\n%v", n, second, at, got, want, explained.Steps)
	}
}

func actions(steps []run.StepPlan) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.ID+" "+s.Action+": "+s.Why)
	}
	return strings.Join(out, "\n")
}

// until runs a task until it has recorded the ends of some steps, and no more.
func (p *place) until(t *testing.T, ref taskstore.TaskRef, o runlog.Options, ended string) string {
	t.Helper()
	whole := p.live(t, ref, o, -1)
	n := 0
	for e, err := range p.store.Runs().Events(t.Context(), whole.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; e.Kind == runlog.StepEnded {
			if ended = strings.TrimPrefix(strings.Replace(" "+ended+" ", " "+e.Step+" ", " ", 1), " "); strings.TrimSpace(ended) == "" {
				return p.live(t, ref, o, n).ID
			}
		}
	}
	t.Fatalf("%s never ends", ended)
	return ""
}

func TestResumeSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		task, ended string
		keep        bool
		want        string
	}{
		"its sandbox is gone": {"plain", "sum", false, `
box again: its sandbox 'box' is gone, and step 'two' needs it
one again: it depends on step 'box', whose sandbox is gone
sum again: it depends on step 'box', whose sandbox is gone
two starts: it had not started
all starts: it had not started`},
		"its sandbox is up": {"plain", "sum", true, `
box kept: finished, its sandbox is up
one kept: finished
sum kept: finished, needs no world
two starts: it had not started
all starts: it had not started`},
		"nothing needs the sandbox": {"plain", "two", false, `
box kept: finished, nothing that is left to run needs its sandbox
one kept: finished
sum kept: finished, needs no world
two kept: finished
all starts: it had not started`},
		"after a fatal failure": {"fatal", "bad", false, `
box kept: finished, nothing that is left to run needs its sandbox
bad kept: failed, which ends the task
two never: a step before it failed
collect starts: it had not started
down starts: it had not started`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			id := p.until(t, p.put(t, "@local/t", lives[c.task]), runlog.Options{Keep: c.keep}, c.ended)
			r, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{Explain: true}, &reporter{})
			if err != nil || "\n"+actions(r.Steps) != c.want {
				t.Errorf("%v\n%s\nwant%s", err, actions(r.Steps), c.want)
			}
			if sum, _ := p.store.Runs().Get(t.Context(), id); sum.Status != runlog.Interrupted || sum.Owner != nil {
				t.Errorf("an explanation changed the run: %+v", sum)
			}
		})
	}
}

func TestResumeWithAnotherVersion(t *testing.T) {
	p := newPlace(t)
	steps := `[` + noBox + `"id": "a"},` + noBox + `"id": "b", "score_aggregator": "all_pass"},` + noBox + `"id": "c", "depends_on": ["a"]},` + noBox + `"id": "d"}]`
	id := p.until(t, p.put(t, "@local/t", steps), runlog.Options{}, "b c")
	p.put(t, "@local/t", strings.Replace(steps, "all_pass", "any_pass", 1))
	same, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{Explain: true}, &reporter{})
	if err != nil || strings.Contains(actions(same.Steps), "again") {
		t.Errorf("the run's own version: %v\n%s", err, actions(same.Steps))
	}
	r, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{Version: 2}, &reporter{})
	want := "a kept: finished, needs no world\nb again: its document changed from version 1 to 2: score_aggregator\nc kept: finished, needs no world\nd starts: it had not started"
	if err != nil || actions(r.Steps) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, actions(r.Steps), want)
	}
	rec, _ := runlog.Load(t.Context(), p.store.Runs(), id)
	if rec.TaskVersion != 2 || rec.Epochs != 2 || !rec.Status.Ended() {
		t.Errorf("%+v", rec.Summary)
	}
}

func TestResumeRefusesWhatIsDriven(t *testing.T) {
	p := newPlace(t)
	ref := p.put(t, "@local/t", `[`+noBox+`"id": "a"}]`)
	if _, err := p.process(-1).Resume(t.Context(), "@local/none", ResumeOptions{}, &reporter{}); !errors.Is(err, runlog.ErrNotFound) {
		t.Error(err)
	}
	id := p.live(t, ref, runlog.Options{}, 1).ID
	if _, err := p.store.Runs().Claim(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{}, &reporter{}); !errors.Is(err, runlog.ErrOwned) {
		t.Error(err)
	}
}

// TestOwnerWhoWakesUpStops takes a run over from an owner that is not renewing, then lets that owner go on.
func TestOwnerWhoWakesUpStops(t *testing.T) {
	p := newPlace(t)
	sleeping, wake := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var calls atomic.Int32
	p.execs["run_container_unit_tests_verifier"] = executorFunc(func(ctx context.Context, c *step.Call) error {
		if calls.Add(1) == 1 {
			once.Do(func() { close(sleeping) })
			<-wake
			c.Log.Info("too late")
			c.Out.Unset("x")
		}
		return nil
	})
	ref := p.put(t, "@local/t", `[`+deployStep+`,{"id": "slow", "type": "run_container_unit_tests_verifier", "sandbox_name": "box", "container_name": "c", "command": "x"},`+
		noBox+`"id": "end"}]`)
	var old RunResult
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, err := p.process(-1).RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}, Options: runlog.Options{Keep: true}}, &reporter{})
		if err == nil {
			old = s.Runs[0]
		}
	}()
	<-sleeping
	page, err := p.store.Runs().List(t.Context(), runlog.Query{})
	if err != nil || len(page.Runs) != 1 {
		t.Fatal(page, err)
	}
	p.ahead.Add(int64(time.Hour))
	r, err := p.process(-1).Resume(t.Context(), page.Runs[0].ID, ResumeOptions{}, &reporter{})
	if err != nil || r.Summary.Runs[0].Status != runlog.Passed && r.Summary.Runs[0].Status != runlog.Scored {
		t.Fatalf("%+v %v", r.Summary, err)
	}
	close(wake)
	<-done
	if !old.Fenced || old.Status != runlog.InfraFailed {
		t.Errorf("the old owner: %+v", old)
	}
	if len(p.fake.Machines()) != 1 {
		t.Errorf("%d sandboxes: the old owner touched what was no longer its own", len(p.fake.Machines()))
	}
	epochs := map[uint64]bool{}
	var last runlog.Event
	for e := range p.store.Runs().Events(t.Context(), page.Runs[0].ID, 0) {
		if epochs[e.Epoch] = true; e.Epoch < last.Epoch {
			t.Errorf("event %d of epoch %d after one of epoch %d", e.Seq, e.Epoch, last.Epoch)
		}
		last = e
	}
	if last.Kind != runlog.RunEnded || len(epochs) != 2 {
		t.Errorf("%v, %v", last, slices.Sorted(maps.Keys(epochs)))
	}
}

type executorFunc func(ctx context.Context, c *step.Call) error

func (f executorFunc) Run(ctx context.Context, c *step.Call) error { return f(ctx, c) }

// TestDecisionsAreAnsweredOnce asks for a decision, kills the owner after it was taken, and wants it to be there once for the next owner.
func TestDecisionsAreAnsweredOnce(t *testing.T) {
	p := newPlace(t)
	var seen atomic.Int32
	p.execs["review"] = executorFunc(func(ctx context.Context, c *step.Call) error {
		select {
		case d := <-c.Decisions:
			seen.Add(1)
			select {
			case again := <-c.Decisions:
				return fmt.Errorf("answered twice: %+v", again)
			case <-time.After(20 * time.Millisecond):
			}
			return c.Out.Set("metadata/review_decisions", d)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ref := p.put(t, "@local/t", `[{"id": "ask", "type": "review"}, `+noBox+`"id": "end"}]`)
	for n := range 7 {
		ctx, cancel := context.WithCancel(t.Context())
		e := p.process(n)
		rep := &reporter{}
		started := make(chan string, 1)
		rep.steps = func(ref RunRef, st run.StepStarted) {
			if st.ID == "ask" {
				started <- ref.ID
			}
		}
		done := make(chan Summary, 1)
		go func() {
			s, _ := e.RunStored(ctx, StoredRequest{Tasks: []taskstore.TaskRef{ref}}, rep)
			done <- s
		}()
		id, asked := "", false
		var s Summary
		select {
		case id = <-started:
			if got, err := e.Decide(t.Context(), id, "", step.Decision{Choice: step.Continue, By: "me"}); err != nil || got != "ask" {
				t.Fatal(got, err)
			}
			asked = true
			s = <-done
		case s = <-done:
		}
		id = s.Runs[0].ID
		cancel()
		p.ahead.Add(int64(time.Hour))
		if sum, _ := p.store.Runs().Get(t.Context(), id); sum.Status.Ended() {
			continue
		}
		// A request is handed out once, and its owner may die before it is on record: then the person sees that the step still waits.
		onRecord := false
		for ev := range p.store.Runs().Events(t.Context(), id, 0) {
			onRecord = onRecord || ev.Kind == runlog.StepDecided
		}
		if onRecord && !asked {
			t.Error("a decision that nobody made")
		}
		if !onRecord {
			if _, err := p.process(-1).Decide(t.Context(), id, "ask", step.Decision{Choice: step.Continue}); err != nil {
				t.Fatal(n, err)
			}
		}
		r, err := p.process(-1).Resume(t.Context(), id, ResumeOptions{}, &reporter{})
		if err != nil || r.Summary.Runs[0].Status != runlog.Scored {
			t.Errorf("killed at %d: %+v %v", n, r.Summary, err)
		}
	}
	if seen.Load() < 7 {
		t.Errorf("%d decisions were seen", seen.Load())
	}
}

func TestDecideRefuses(t *testing.T) {
	p := newPlace(t)
	p.execs["review"] = executorFunc(func(context.Context, *step.Call) error { return nil })
	id := p.until(t, p.put(t, "@local/t", `[{"id": "ask", "type": "review"}, `+noBox+`"id": "end"}]`), runlog.Options{}, "ask")
	e := p.process(-1)
	for want, d := range map[string][2]string{
		"is no decision; decide continue or abort": {"ask", "maybe"},
		"is over: it succeeded":                    {"ask", step.Abort},
		"waits for no decision":                    {"end", step.Abort},
		"its review steps are ask":                 {"none", step.Abort},
		"no step of the run waits":                 {"", step.Abort},
	} {
		if _, err := e.Decide(t.Context(), id, d[0], step.Decision{Choice: d[1]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", d, err)
		}
	}
	if got, err := e.Cancel(t.Context(), id); err != nil || got != CancelEnded {
		t.Error(got, err)
	}
	if _, err := e.Decide(t.Context(), id, "ask", step.Decision{Choice: step.Abort}); !errors.Is(err, runlog.ErrEnded) {
		t.Error(err)
	}
}

func TestCancelOfAnInterruptedRun(t *testing.T) {
	for _, keep := range []bool{false, true} {
		p := newPlace(t)
		id := p.until(t, p.put(t, "@local/t", lives["plain"]), runlog.Options{Keep: keep}, "one")
		for _, m := range p.fake.Machines() {
			if m.Spec().Run != id { // the whole run's
				_ = p.fake.Destroy(t.Context(), m.ID())
			}
		}
		got, err := p.process(-1).Cancel(t.Context(), id)
		if err != nil || got != CancelEnded {
			t.Fatal(got, err)
		}
		rec, _ := runlog.Load(t.Context(), p.store.Runs(), id)
		if rec.Status != runlog.Cancelled || rec.Steps[1].Status != runlog.Succeeded || rec.Steps[3].Status != runlog.Skipped {
			t.Errorf("%+v", rec)
		}
		if n := len(p.fake.Machines()); keep && n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		if _, err := p.process(-1).Cancel(t.Context(), id); !errors.Is(err, runlog.ErrEnded) {
			t.Error(err)
		}
	}
}
