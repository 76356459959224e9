package bundlerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// ResumeOptions is how to resume a run.
type ResumeOptions struct {
	// Explain tells what would be done and does nothing.
	Explain bool
	// Version is another version of the task to go on with: steps whose documents differ run again. 0 is the run's own.
	Version int
}

// Resumed is what Resume found and did.
type Resumed struct {
	Run     string         `json:"run_id"`
	Task    string         `json:"task_id"`
	Version int            `json:"task_version"`
	Steps   []run.StepPlan `json:"steps"` // what becomes of each, and why
	// Summary is nil of an explanation.
	Summary *Summary `json:"summary,omitempty"`
}

// Explainer is a Reporter that is told what becomes of each step of a resumed run, after RunStarted.
type Explainer interface {
	Resuming(RunRef, []run.StepPlan)
}

// Resume goes on with a run that nobody drives any more: what has ended stays where it can, the rest runs. The run is the caller's from then on, and
// an owner that was stopped and wakes up stops by itself. id is a whole run id; see runlog.Log.Resolve. An error that is runlog.ErrEnded,
// runlog.ErrOwned or runlog.ErrNotFound, or a diag.Refusal, left the run as it was.
func (e *Engine) Resume(ctx context.Context, id string, o ResumeOptions, rep Reporter) (Resumed, error) {
	sum, err := e.Runs.Get(ctx, id)
	if err != nil {
		return Resumed{}, err
	}
	out := Resumed{Run: id, Task: sum.Task}
	if sum.Status.Ended() {
		return out, fmt.Errorf("%s is %s since %s, and can't be resumed: %w", id, sum.Status, sum.Ended.Format(time.DateTime), runlog.ErrEnded)
	}
	if o.Explain {
		j, err := e.rejoin(ctx, sum, o)
		if err == nil {
			out.Version, out.Steps = j.task.Version, j.prior.Steps
		}
		return out, err
	}
	// What stands in the way is told before the run is taken from whoever has it.
	if _, err := e.rejoin(ctx, sum, o); err != nil {
		return out, err
	}
	owner, err := e.Runs.Claim(ctx, id)
	if err != nil {
		return out, err
	}
	j, err := e.rejoin(ctx, sum, o) // the owner before may have written until now
	if err != nil {
		return out, errors.Join(err, owner.Release(context.WithoutCancel(ctx)))
	}
	e.keepLeft(ctx, owner, id)
	out.Version, out.Steps = j.task.Version, j.prior.Steps
	s := Summary{Bundle: sum.Bundle, Group: sum.Group, Runs: []RunResult{}}
	rep.RunStarted(j.ref)
	if x, ok := rep.(Explainer); ok {
		x.Resuming(j.ref, j.prior.Steps)
	}
	res := e.drive(ctx, rep, j, owner)
	rep.RunEnded(res)
	e.book(ctx, &s, []RunResult{res})
	out.Summary = &s
	return out, nil
}

// rejoin reads what is known of a run, and makes a job of it. It changes nothing.
func (e *Engine) rejoin(ctx context.Context, sum runlog.Summary, o ResumeOptions) (job, error) {
	events, err := e.events(ctx, sum.ID)
	if err != nil {
		return job{}, err
	}
	recorded := sum.TaskVersion
	for _, ev := range events {
		var start runlog.RunStart
		if ev.Kind == runlog.RunStarted && json.Unmarshal(ev.Data, &start) == nil && start.Version > 0 {
			recorded = start.Version
		}
		if ev.Kind == runlog.RunEnded {
			return job{}, fmt.Errorf("%s: %w", sum.ID, runlog.ErrEnded)
		}
	}
	t, err := e.stored(ctx, sum.Task, recorded, sum.Options)
	if err != nil {
		return job{}, err
	}
	var changed map[string]string
	if o.Version > 0 && o.Version != recorded {
		before := t
		if t, err = e.stored(ctx, sum.Task, o.Version, sum.Options); err != nil {
			return job{}, err
		}
		changed = changes(before, t)
	}
	plan := step.Plan{Sandbox: sum.Options.Sandbox, Isolation: sum.Options.Isolation, Models: sum.Options.Models, Fixed: fixed(sum.Options.Params), Agent: sum.Options.Agent, Type: e.types(nil)}
	if err := e.runner().Preflight(ctx, t, sum.Label, plan).Err(); err != nil {
		return job{}, err
	}
	alive, err := e.Deploy.Alive(ctx, sum.ID, boxes(events))
	if err != nil {
		return job{}, err
	}
	prior, err := e.runner().Replan(ctx, t, events, alive, changed)
	if err != nil {
		return job{}, err
	}
	j := job{task: t, eval: sum.Eval, options: sum.Options, prior: prior, ref: RunRef{
		Number: 1, Of: 1, ID: sum.ID, Task: sum.Task, Label: sum.Label, Version: t.Version, Trial: max(sum.Trial, 1), Trials: max(sum.Trial, 1),
	}}
	if t.Version != sum.TaskVersion {
		j.version = t.Version
	}
	return j, nil
}

func (e *Engine) events(ctx context.Context, id string) ([]runlog.Event, error) {
	var out []runlog.Event
	for ev, err := range e.Runs.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if ev.Kind != runlog.StepLog { // the bulk of a record, and of no consequence
			out = append(out, ev)
		}
	}
	return out, nil
}

// boxes are the sandboxes that a record names.
func boxes(events []runlog.Event) []deploy.Known {
	var out []deploy.Known
	for _, ev := range events {
		var b runlog.Box
		if ev.Kind == runlog.BoxCreated && json.Unmarshal(ev.Data, &b) == nil {
			out = append(out, deploy.Known{Provider: b.Provider, ID: b.ID, Name: b.Name, Step: b.Step})
		}
	}
	return out
}

// changes says of the steps of a task how their documents differ from those of an earlier version.
func changes(before, after *task.Task) map[string]string {
	out := map[string]string{}
	for i := range after.Steps {
		st := &after.Steps[i]
		at, ok := before.Index(st.ID)
		if !ok {
			continue
		}
		old, now := before.Steps[at].Kind.Fill(before.Steps[at].Doc), st.Kind.Fill(st.Doc)
		var fields []string
		for _, pair := range [][2]doc.Node{{old, now}, {now, old}} {
			for name, v := range pair[0].Members() {
				if !doc.Equal(v, pair[1].Get(name)) && !slices.Contains(fields, name) {
					fields = append(fields, name)
				}
			}
		}
		if len(fields) > 0 {
			slices.Sort(fields)
			out[st.ID] = fmt.Sprintf("its document changed from version %d to %d: %s", before.Version, after.Version, strings.Join(fields, ", "))
		}
	}
	return out
}

// CancelOutcome is what Cancel did.
type CancelOutcome string

// Outcomes of Cancel.
const (
	CancelAsked CancelOutcome = "asked" // its owner was told; the run ends when its steps have stopped
	CancelEnded CancelOutcome = "ended" // nobody drove it: its sandboxes are removed and its end is on record
)

// Cancel ends a run from any process. runlog.ErrEnded, runlog.ErrNotFound.
func (e *Engine) Cancel(ctx context.Context, id string) (CancelOutcome, error) {
	sum, err := e.Runs.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if sum.Status != runlog.Interrupted {
		return CancelAsked, e.Runs.Ask(ctx, id, runlog.Request{Kind: runlog.AskCancel})
	}
	owner, err := e.Runs.Claim(ctx, id)
	if errors.Is(err, runlog.ErrOwned) { // somebody resumed it just now
		return CancelAsked, e.Runs.Ask(ctx, id, runlog.Request{Kind: runlog.AskCancel})
	}
	if err != nil {
		return "", err
	}
	e.keepLeft(ctx, owner, id)
	rec, err := runlog.Load(ctx, e.Runs, id)
	if err != nil {
		return "", errors.Join(err, owner.Release(context.WithoutCancel(ctx)))
	}
	t := &task.Task{ID: sum.Task, Version: sum.TaskVersion}
	for _, st := range rec.Steps {
		t.Steps = append(t.Steps, task.Step{ID: st.ID, Type: st.Type, Doc: doc.Build(map[string]any{"id": st.ID, "type": st.Type})})
	}
	events, err := e.events(ctx, id)
	if err == nil {
		events = append(events, runlog.Event{Kind: runlog.Cancelling})
		var prior *run.Prior
		if prior, err = e.runner().Replan(ctx, t, events, nil, nil); err == nil {
			_, err = e.runner().Run(ctx, run.Request{Run: id, Task: t, Owner: owner, Prior: prior})
		}
	}
	return CancelEnded, errors.Join(err, owner.Release(context.WithoutCancel(ctx)))
}

// Decide tells a step that waits for a person what was decided; "" is the one step that waits. The decision waits for a step that has not started, and
// for a run that is interrupted. runlog.ErrEnded, runlog.ErrNotFound, or a diag.Refusal. It answers the step's id.
func (e *Engine) Decide(ctx context.Context, id, stepID string, d step.Decision) (string, error) {
	typ := review
	switch d.Choice {
	case step.Continue, step.Abort:
	case step.Reply:
		typ = prompt
	default:
		return "", refuse(fmt.Sprintf("%s is no decision", diag.Repr(d.Choice)), "decide "+step.Continue+" or "+step.Abort)
	}
	rec, err := runlog.Load(ctx, e.Runs, id)
	if err != nil {
		return "", err
	}
	if rec.Status.Ended() {
		return "", fmt.Errorf("%s: %w", id, runlog.ErrEnded)
	}
	if len(rec.Steps) == 0 { // nobody started it yet
		t, err := e.stored(ctx, rec.Task, rec.TaskVersion, rec.Options)
		if err != nil {
			return "", err
		}
		for i := range t.Steps {
			rec.Steps = append(rec.Steps, runlog.StepRecord{StepInfo: runlog.StepInfo{ID: t.Steps[i].ID, Type: t.Steps[i].Type}, Status: runlog.Queued})
		}
	}
	st, err := waiting(rec, stepID, typ)
	if err != nil {
		return "", err
	}
	if d.At.IsZero() {
		d.At = time.Now()
	}
	d.At = d.At.UTC().Truncate(time.Microsecond)
	data, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	return st, e.Runs.Ask(ctx, id, runlog.Request{Kind: runlog.AskDecide, Step: st, Data: data})
}

// review and prompt are the step types that wait for a person: for a decision, and for the reply of an agent that is one.
const (
	review = "review"
	prompt = "prompt_agent"
)

// waiting is the step of a type that a decision, or a reply, is for.
func waiting(rec runlog.Record, id, typ string) (string, error) {
	what := map[string]string{review: "decision", prompt: "reply"}[typ]
	var open, names []string
	for _, st := range rec.Steps {
		if st.Type == typ {
			names = append(names, st.ID)
			if st.Status == runlog.Running || st.Status == runlog.Interrupted {
				open = append(open, st.ID)
			}
		}
		if st.ID != id {
			continue
		}
		switch {
		case st.Type != typ:
			return "", refuse(fmt.Sprintf("step '%s' is of type %s, which waits for no %s", id, st.Type, what), "name a "+typ+" step")
		case st.Status == runlog.Succeeded || st.Status == runlog.Failed || st.Status == runlog.Skipped:
			return "", refuse(fmt.Sprintf("step '%s' is over: it %s", id, st.Status), "agent-env runs show tells what became of it")
		}
		return id, nil
	}
	switch {
	case id != "":
		fix := "it has no " + typ + " step"
		if len(names) > 0 {
			fix = "its " + typ + " steps are " + strings.Join(names, ", ")
		}
		return "", refuse(fmt.Sprintf("the run has no step %s", diag.Repr(id)), fix)
	case len(open) == 1:
		return open[0], nil
	case len(open) == 0:
		return "", refuse("no step of the run waits for a "+what+" now", "name the step that is to have it")
	default:
		return "", refuse("several steps wait for a "+what, "name one: "+strings.Join(open, ", "))
	}
}

func refuse(what, fix string) error {
	return diag.List{{Code: "run.decide", Summary: what, Fix: fix}}.Err()
}
