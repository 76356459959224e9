package bundlerun

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/eval/report"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

// evals is a place with an eval of tasks that a scripted agent answers and a scripted judge grades.
type evals struct {
	*place
	agent  model.Model
	faults func(task string, trial int) error // of the agent's endpoint; nil: none
	asked  atomic.Int64
}

func (p *place) putScript(t *testing.T, id, text string) {
	t.Helper()
	s, err := p.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, n, err := s.Put(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	latest := 0
	if old, err := p.store.Get(t.Context(), store.Artifact, id, 0); err == nil {
		latest = old.Version
	}
	f := artifact.NewFile(artifact.Pin{ID: id, Version: latest + 1}, artifact.Bytes{Path: "s.json", Digest: d, Size: n, Mode: 0o644}, "")
	s.Doc(store.Doc{Kind: store.Artifact, ID: id, Version: f.Version, Type: f.Type, Body: f.Body(time.Now()), Objects: f.Objects}, store.LatestIs(latest))
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// taskOf asks the agent of a task's number: it answers well in some of its trials.
func taskOf(i int) string {
	return fmt.Sprintf(`[{"id": "ask", "type": "prompt_agent", "prompt": "task %d", "prompt_id": "p"},
		{"id": "grade", "type": "rubrics_verifier", "prompt_id": "p", "use_agent_judge": false, "use_trajectory": false, "default_model": "scripted:@local/judge",
		 "criteria": [{"id": "good", "criterion": "is good"}, {"id": "short", "criterion": "is short"}], "score_aggregator": "weighted_average"}]`, i)
}

const judgeScript = `{"variants": [{"rules": [
	{"when": "What it answered\\s+good", "say": "{\"results\":[{\"id\":\"c1\",\"score\":1,\"justification\":\"it is\"},{\"id\":\"c2\",\"score\":1,\"justification\":\"it is\"}]}"},
	{"when": "What it answered\\s+fair", "say": "{\"results\":[{\"id\":\"c1\",\"score\":0,\"justification\":\"it isn't\"},{\"id\":\"c2\",\"score\":1,\"justification\":\"it is\"}]}"},
	{"when": "What it answered\\s+odd", "say": "I would say 0.5."},
	{"when": "can't be used", "say": "I would still say 0.5."},
	{"when": ".", "say": "{\"results\":[{\"id\":\"c1\",\"score\":0,\"justification\":\"no\"},{\"id\":\"c2\",\"score\":0,\"justification\":\"no\"}]}"}]}]}`

func newEvals(t *testing.T, tasks int) *evals {
	e := &evals{place: newPlace(t)}
	e.putScript(t, "@local/judge", judgeScript)
	var variants []string
	for _, says := range [][]string{{"good", "good"}, {"fair", "good"}, {"bad", "odd"}, {"good", "bad"}} {
		variants = append(variants, fmt.Sprintf(`{"rules": [{"when": "task \\d*[02468]$", "say": %q}, {"when": ".", "say": %q}]}`, says[0], says[1]))
	}
	script, err := model.ParseScript([]byte(`{"variants": [` + strings.Join(variants, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	e.agent = model.NewScripted(script)
	e.execs["prompt_agent"] = executorFunc(func(ctx context.Context, c *step.Call) error {
		e.asked.Add(1)
		if e.faults != nil {
			if err := e.faults(c.Doc.Get("prompt").Text(), c.Trial); err != nil {
				return step.Infra(err)
			}
		}
		res, err := e.agent.Generate(ctx, &model.Request{Variant: c.Trial - 1, Messages: []model.Message{model.Text(model.User, c.Doc.Get("prompt").Text())}})
		if err != nil {
			return err
		}
		c.Spent(step.Cost{USD: 0.25, InputTokens: 10, OutputTokens: 1})
		return errors.Join(
			c.Out.Append("prompt_responses", map[string]any{"prompt_id": "p", "prompt_text": c.Doc.Get("prompt").Text(), "response": res.Message.Text()}),
			c.Out.Set(step.Child("metadata/models/solver", c.Step), "scripted:@local/agent"))
	})
	models := source.New(e.store, func(context.Context) (source.Settings, error) { return source.Settings{}, nil }, model.Patience{}, slog.New(slog.DiscardHandler))
	t.Cleanup(models.Close)
	e.execs["rubrics_verifier"] = verify.NewRubricsVerifier(verify.RubricsOptions{
		Store: e.store, Models: models, Panel: func(context.Context) (verify.Panel, error) { return verify.Panel{}, nil },
	})
	var list []any
	for i := range tasks {
		ref := e.put(t, fmt.Sprintf("@local/t%02d", i), taskOf(i))
		list = append(list, ref.ID)
	}
	_, l, err := taskstore.New(e.store, step.Kinds()).CreateEval(t.Context(), "@local/e", doc.Build(list))
	if err != nil || l.HasErrors() {
		t.Fatal(err, l)
	}
	return e
}

// table is everything that an eval run says but times and ids.
func (e *evals) table(t *testing.T, id string) string {
	t.Helper()
	r, err := e.process(-1).EvalReport(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, x := range r.Tasks {
		x.Stats.Seconds = 0
		text, _ := json.Marshal(x.Stats)
		fmt.Fprintf(&b, "%s %s\n", x.ID, text)
	}
	for _, x := range r.Trials {
		fmt.Fprintf(&b, "%s %d %s %v\n", x.Task, x.Number, x.Status, x.Scores)
	}
	text, _ := json.Marshal(r.Counts)
	if c := r.Counts; c.N != c.Passed+c.Scored+c.Unscored+c.Failed+c.InfraFailed+c.Cancelled || c.N != len(r.Trials) {
		t.Errorf("trials are lost: %s of %d", text, len(r.Trials))
	}
	fmt.Fprintf(&b, "%s models %v scripted %v missing %d\n", text, r.Models, r.Scripted, r.Missing)
	return b.String()
}

const evalTasks, evalK = 50, 4

func TestEvalOf200Runs(t *testing.T) {
	e := newEvals(t, evalTasks)
	out, err := e.process(-1).RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: evalK, Concurrency: 16}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	s := out.Summary
	// Even tasks: good, fair, bad, good. Odd tasks: good, good, no verdict, bad.
	if s.N != 200 || s.Passed != 100 || s.Scored != 75 || s.Unscored != 25 || s.Failed+s.InfraFailed+s.Cancelled != 0 {
		t.Errorf("%+v", s.Counts)
	}
	whole := e.table(t, out.Run.ID)
	if !strings.Contains(whole, `models map[judge:[scripted:@local/judge] solver:[scripted:@local/agent]] scripted true missing 0`) {
		t.Error(whole)
	}
	for _, c := range []struct{ first, second int }{{0, -1}, {7, -1}, {331, -1}, {900, 200}, {1500, -1}} {
		again := newEvals(t, evalTasks)
		dead := again.process(c.first)
		first, err := dead.RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: evalK, Concurrency: 8}, &reporter{})
		if err != nil {
			t.Fatal(err)
		}
		id := first.Run.ID
		again.ahead.Add(int64(time.Minute)) // its claims lapse
		if c.second >= 0 {
			if _, err := again.process(c.second).RunEval(t.Context(), EvalRequest{Resume: id, Concurrency: 8}, &reporter{}); err != nil {
				t.Fatal(err)
			}
			again.ahead.Add(int64(time.Minute))
		}
		part := again.table(t, id)
		if part == whole {
			t.Errorf("killed at %d, and nothing is missing", c.first)
		}
		done := strings.Count(part, " passed map") + strings.Count(part, " scored map") + strings.Count(part, " unscored map")
		before := again.asked.Load()
		res, err := again.process(-1).RunEval(t.Context(), EvalRequest{Resume: id[:9], Concurrency: 8}, &reporter{})
		if err != nil {
			t.Fatal(err)
		}
		if got := again.table(t, id); got != whole {
			t.Errorf("killed at %d and resumed:\n%s\nuninterrupted:\n%s", c.first, got, whole)
		}
		if n := int(again.asked.Load() - before); n > evalTasks*evalK-done {
			t.Errorf("killed at %d with %d results: %d ran again", c.first, done, n)
		}
		if res.Summary.N != 200 || res.Summary.Counts != s.Counts {
			t.Errorf("the summary of the resumed run: %+v", res.Summary.Counts)
		}
	}
}

// TestFaultsDontMoveScores: what could not be run is counted apart, the others score as ever, and a resumed run fills the gaps.
func TestFaultsDontMoveScores(t *testing.T) {
	clean := newEvals(t, 20)
	base, err := clean.process(-1).RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: 4}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	whole := clean.table(t, base.Run.ID)

	e := newEvals(t, 20)
	faulty := func(task string, trial int) bool { return (len(task)+int(task[len(task)-1])+trial)%3 == 0 }
	kinds := []string{model.RateLimited, model.Overloaded, model.Unreachable, model.Cut, model.TimedOut, model.Denied}
	e.faults = func(task string, trial int) error {
		if faulty(task, trial) {
			return &model.Error{Kind: kinds[trial%len(kinds)], Message: "injected"}
		}
		return nil
	}
	out, err := e.process(-1).RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: 4}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	if out.Summary.InfraFailed == 0 || out.Summary.Failed != 0 || out.Summary.N != 80 {
		t.Errorf("%+v", out.Summary.Counts)
	}
	scores := func(e *evals, id string) map[string]string {
		r, err := e.process(-1).EvalReport(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, x := range r.Trials {
			if x.Status != runlog.InfraFailed {
				m[fmt.Sprintf("%s %d", x.Task, x.Number)] = fmt.Sprint(x.Status, x.Scores)
			}
		}
		return m
	}
	want, got := scores(clean, base.Run.ID), scores(e, out.Run.ID)
	for k, v := range got {
		if want[k] != v {
			t.Errorf("%s scores %s with faults elsewhere and %s without", k, v, want[k])
		}
	}
	if len(got)+out.Summary.InfraFailed != 80 {
		t.Errorf("%d results beside %d faults", len(got), out.Summary.InfraFailed)
	}
	e.faults = nil
	before := e.asked.Load()
	if _, err := e.process(-1).RunEval(t.Context(), EvalRequest{Resume: out.Run.ID}, &reporter{}); err != nil {
		t.Fatal(err)
	}
	if n := int(e.asked.Load() - before); n != out.Summary.InfraFailed {
		t.Errorf("%d ran again, %d could not be run before", n, out.Summary.InfraFailed)
	}
	if got := e.table(t, out.Run.ID); got != whole {
		t.Errorf("without faults at last:\n%s\nwithout faults ever:\n%s", got, whole)
	}
}

func trialActions(plan []TrialPlan) string {
	n := map[string]int{}
	for _, p := range plan {
		n[p.Action]++
	}
	return fmt.Sprintf("%d kept, %d again, %d new", n[TrialKept], n[TrialAgain], n[TrialNew])
}

func TestWhatMakesTrialsRunAgain(t *testing.T) {
	e := newEvals(t, 5)
	out, err := e.process(-1).RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: 2}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	explain := func(x *Engine, o runlog.Options) []TrialPlan {
		t.Helper()
		got, err := x.RunEval(t.Context(), EvalRequest{Resume: out.Run.ID, Explain: true, Options: o, Concurrency: 7}, &reporter{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Plan
	}
	if got := trialActions(explain(e.process(-1), runlog.Options{Keep: true, Parallel: 3})); got != "10 kept, 0 again, 0 new" {
		t.Error("after changing what is no input:", got)
	}
	e.put(t, "@local/t01", taskOf(77)) // a new version, which the eval means
	plan := explain(e.process(-1), runlog.Options{})
	if got := trialActions(plan); got != "8 kept, 2 again, 0 new" {
		t.Error("after changing a task:", got)
	}
	i := slices.IndexFunc(plan, func(p TrialPlan) bool { return p.Action == TrialAgain })
	if plan[i].Task != "@local/t01" || !strings.HasPrefix(plan[i].Why, "step ask changed: ") || strings.Contains(plan[i].Why, "grade") {
		t.Errorf("%+v", plan[i])
	}
	x := e.process(-1)
	x.Settings = func(context.Context) (map[string]string, error) {
		return map[string]string{"setting model.params.temperature": "0.7"}, nil
	}
	plan = explain(x, runlog.Options{})
	if got := trialActions(plan); got != "0 kept, 10 again, 0 new" || plan[0].Why != "setting model.params.temperature is new: 0.7" {
		t.Error("after changing a setting:", got, plan[0].Why)
	}
	before := e.asked.Load()
	if _, err := e.process(-1).RunEval(t.Context(), EvalRequest{Resume: out.Run.ID}, &reporter{}); err != nil || e.asked.Load()-before != 2 {
		t.Errorf("%d ran again: %v", e.asked.Load()-before, err)
	}
	if got := trialActions(explain(e.process(-1), runlog.Options{})); got != "10 kept, 0 again, 0 new" {
		t.Error("after running those:", got)
	}
	e.putScript(t, "@local/judge", judgeScript+" ")
	if plan := explain(e.process(-1), runlog.Options{}); trialActions(plan) != "0 kept, 10 again, 0 new" || !strings.HasPrefix(plan[0].Why, "artifact @local/judge changed: v1 ") {
		t.Error("after changing the judge's script:", trialActions(plan), plan[0].Why)
	}
}

func TestEvalRunsAreFoundAndRefused(t *testing.T) {
	e := newEvals(t, 2)
	x := e.process(-1)
	out, err := x.RunEval(t.Context(), EvalRequest{Eval: "@local/e"}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.Run.ID, out.Run.ID[:7], "@local/e"} {
		if got, _, err := x.EvalRun(t.Context(), text); err != nil || got.ID != out.Run.ID {
			t.Errorf("%s: %v %v", text, got.ID, err)
		}
	}
	for _, text := range []string{"", "nope"} {
		if _, _, err := x.EvalRun(t.Context(), text); err == nil || !strings.Contains(err.Error(), "there is no eval run") {
			t.Errorf("%q: %v", text, err)
		}
	}
	// A group of another command can be told of, and not be gone on with.
	s, err := x.RunStored(t.Context(), StoredRequest{Eval: "@local/e", K: 3}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.EvalReport(t.Context(), s.Group)
	if err != nil || r.N != 6 || len(r.Tasks) != 2 || r.Stored {
		t.Errorf("%+v stored %t %v", r.Counts, r.Stored, err)
	}
	// The eval's id means it now, being the latest, and to go on the latest that can be gone on with.
	if r, err := x.EvalReport(t.Context(), "@local/e"); err != nil || r.ID != s.Group {
		t.Errorf("%s for %s: %v", r.ID, s.Group, err)
	}
	if got, err := x.RunEval(t.Context(), EvalRequest{Resume: "@local/e", Explain: true}, &reporter{}); err != nil || got.Run.ID != out.Run.ID {
		t.Errorf("%s for %s: %v", got.Run.ID, out.Run.ID, err)
	}
	if r, err := x.EvalReport(t.Context(), out.Run.ID); err != nil || !r.Stored {
		t.Errorf("stored %t: %v", r.Stored, err)
	}
	_, err = x.RunEval(t.Context(), EvalRequest{Resume: s.Group}, &reporter{})
	if _, refused := errors.AsType[*diag.Refusal](err); !refused {
		t.Error(err)
	}
	// While somebody drives a trial nobody else goes on.
	var once sync.Once
	gate := make(chan struct{})
	begun := make(chan struct{})
	e.faults = func(string, int) error {
		once.Do(func() { close(begun) })
		<-gate
		return nil
	}
	done := make(chan error)
	go func() {
		_, err := x.RunEval(t.Context(), EvalRequest{Eval: "@local/e"}, &reporter{})
		done <- err
	}()
	<-begun
	_, err = e.process(-1).RunEval(t.Context(), EvalRequest{Resume: "@local/e"}, &reporter{})
	close(gate)
	if err == nil || !strings.Contains(err.Error(), "under way") {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestReportForms(t *testing.T) {
	e := newEvals(t, 6)
	e.faults = func(task string, trial int) error {
		if task == "task 3" && trial == 1 {
			return &model.Error{Kind: model.Overloaded, Message: "<b>down</b> & out"}
		}
		return nil
	}
	out, err := e.process(-1).RunEval(t.Context(), EvalRequest{Eval: "@local/e", K: 4}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.process(-1).EvalReport(t.Context(), out.Run.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(io.Writer) error{"csv": r.CSV, "junit": r.JUnit, "html": r.HTML} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := b.String()
		switch name {
		case "csv":
			if n := strings.Count(text, "\n"); n != 25 {
				t.Errorf("%d lines of CSV", n)
			}
		case "junit":
			d := xml.NewDecoder(&b)
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			c := r.Counts
			want := fmt.Sprintf(`tests="24" failures="%d" errors="1" skipped="%d"`, c.Scored+c.Failed, c.Unscored+c.Cancelled)
			if !strings.Contains(text, want) || !strings.Contains(text, "&lt;b&gt;down") {
				t.Errorf("%s is not in\n%s", want, text)
			}
		case "html":
			for _, bad := range []string{"<script", "<b>down", "http://", "https://", "src=", "@import", "NaN", "%!"} {
				if strings.Contains(text, bad) {
					t.Errorf("the page holds %q", bad)
				}
			}
			for _, want := range []string{"A scripted model played", "<svg", "pass@k", "@local/t03", "could not be run", out.Run.ID} {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
		}
	}
	empty := report.Report{ID: "x"}
	empty.Sum()
	var b bytes.Buffer
	if err := errors.Join(empty.CSV(&b), empty.JUnit(&b), empty.HTML(&b)); err != nil {
		t.Error(err)
	}
}
