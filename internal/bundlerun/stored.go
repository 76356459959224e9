package bundlerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/internal/taskstore"
)

// Seed is one row of values that stand for <key> in the strings of a task.
type Seed struct {
	Name   string // as people know it
	Values map[string]string
	Key    string // of the value that Name is; "" when it is none of them
}

// StoredRequest is which tasks of the store to run, and how.
type StoredRequest struct {
	// Tasks, by id and version (0: the latest), or all those of the Eval when they are none.
	Tasks       []taskstore.TaskRef
	Eval        string
	EvalVersion int
	// K is how often each task runs, for each seed; 0 is once.
	K int
	// Concurrency is how many runs are under way at once; 0 is DefaultConcurrency.
	Concurrency int
	// Seeds are rows: each task runs once (or K times) with each. Placeholders that a row leaves are refused.
	Seeds []Seed
	// Options hold for every run; their Seed is not used.
	Options runlog.Options
	// AllowPlaceholders lets strings hold text that looks like a placeholder of no seed.
	AllowPlaceholders bool
	// DryRun stops before anything runs.
	DryRun bool
}

// RunStored runs tasks of the store. Nothing is written but the runs' records; everything else is as with Run.
func (e *Engine) RunStored(ctx context.Context, r StoredRequest, rep Reporter) (Summary, error) {
	s := Summary{DryRun: r.DryRun, Runs: []RunResult{}}
	refs := r.Tasks
	if len(refs) == 0 && r.Eval != "" {
		st, err := taskstore.New(e.Store, e.Bundle.Kinds).Get(ctx, store.Eval, r.Eval, r.EvalVersion)
		if err != nil {
			return s, err
		}
		refs = st.Tasks()
		ev := EvalResult{ID: r.Eval, Label: r.Eval, Version: st.Version}
		for _, t := range refs {
			ev.Tasks = append(ev.Tasks, t.ID)
		}
		s.Evals = []EvalResult{ev}
	}
	jobs, err := e.storedJobs(ctx, r, refs, rep)
	if err != nil {
		return s, err
	}
	if r.DryRun {
		for _, j := range jobs {
			if j.ref.Trial == 1 {
				s.WouldRun = append(s.WouldRun, j.ref)
			}
		}
		return s, nil
	}
	e.runAll(ctx, r.Concurrency, rep, &s, jobs)
	return s, nil
}

// storedJobs reads the tasks and tells everything that stands in the way of running them.
func (e *Engine) storedJobs(ctx context.Context, r StoredRequest, refs []taskstore.TaskRef, rep Reporter) ([]job, error) {
	rows := r.Seeds
	if len(rows) == 0 {
		rows = []Seed{{}}
	}
	var problems diag.List
	var round []job
	for _, t := range refs {
		base, err := e.load(ctx, t.ID, t.Version, r.Options.AllowUnknownFields)
		if refusal, ok := errors.AsType[*diag.Refusal](err); ok {
			problems = append(problems, refusal.List...)
			continue
		}
		if err != nil {
			return nil, err
		}
		told := map[string]bool{}
		for _, row := range rows {
			o := r.Options
			o.Seed = row.Values
			if o.Seed == nil && len(r.Seeds) > 0 {
				o.Seed = map[string]string{}
			}
			g := given(o, r.AllowPlaceholders)
			g.Label = row.Key
			full, l := base.With(g, e.Bundle.Kinds, task.Options{AllowUnknownFields: o.AllowUnknownFields})
			problems = append(problems, labelled(once(l, told), t.ID, row.Name)...)
			if full == nil {
				continue
			}
			plan := step.Plan{Sandbox: o.Sandbox, Isolation: o.Isolation, Models: o.Models, Fixed: fixed(o.Params), Agent: o.Agent, Type: e.types(nil)}
			if row.Name == rows[0].Name {
				problems = append(problems, e.runner().Preflight(ctx, full, t.ID, plan)...)
			}
			round = append(round, job{task: full, eval: r.Eval, options: o, ref: RunRef{
				Task: t.ID, Label: t.ID, Version: full.Version, Row: row.Name,
			}})
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		rep.Problems(problems)
	}
	return trials(round, max(r.K, 1)), nil
}

// once leaves out what is wrong between a task's placeholders and the columns when an earlier row has told it: rows share their columns.
func once(l diag.List, told map[string]bool) diag.List {
	return slices.DeleteFunc(l, func(p diag.Problem) bool {
		again := p.Code == task.CodeSeed && told[p.Summary]
		told[p.Summary] = true
		return again
	})
}

// labelled says of problems which task and row they are of.
func labelled(l diag.List, id, row string) diag.List {
	for i := range l {
		at := id
		if row != "" {
			at += fmt.Sprintf(", seed '%s'", row)
		}
		l[i].Pos.File, l[i].Pos.Line = at, 0
	}
	return l
}

func given(o runlog.Options, placeholders bool) task.Given {
	return task.Given{Params: o.Params, Seed: o.Seed, AllowPlaceholders: placeholders}
}

// load is a version of a stored task; 0 is the latest.
func (e *Engine) load(ctx context.Context, id string, version int, allowUnknown bool) (*task.Task, error) {
	st, err := taskstore.New(e.Store, e.Bundle.Kinds).Get(ctx, store.Task, id, version)
	if err != nil {
		return nil, err
	}
	t, l := task.Decode(id, st.List, e.Bundle.Kinds, task.Options{AllowUnknownFields: allowUnknown})
	if err := l.Err(); err != nil {
		return nil, err
	}
	t.Version = st.Version
	return t, nil
}

// stored is a stored task as a run with these options has it.
func (e *Engine) stored(ctx context.Context, id string, version int, o runlog.Options) (*task.Task, error) {
	t, err := e.load(ctx, id, version, true) // what its document may hold was judged when the run was made
	if err != nil {
		return nil, err
	}
	full, l := t.With(given(o, true), e.Bundle.Kinds, task.Options{AllowUnknownFields: true})
	if full == nil {
		return nil, l.Err()
	}
	return full, nil
}

// withParams is a bundle's task with the fields that are meant for its steps.
func (e *Engine) withParams(t *task.Task, label string, params map[string]map[string]json.RawMessage) (*task.Task, diag.List) {
	full, l := t.With(task.Given{Params: own(t, params)}, e.Bundle.Kinds, task.Options{AllowUnknownFields: true})
	return full, labelled(l, label, "")
}

// strangers refuses params for steps that no task has.
func strangers(tasks []*task.Task, params map[string]map[string]json.RawMessage) diag.List {
	var l diag.List
	for _, id := range slices.Sorted(maps.Keys(params)) {
		if !slices.ContainsFunc(tasks, func(t *task.Task) bool { _, ok := t.Index(id); return ok }) {
			l.Add(diag.Problem{
				Where: "step_params", Code: task.CodeParam, Summary: diag.Repr(id) + " names no step of the tasks to run", Fix: "name one, or leave it out",
			})
		}
	}
	return l
}

// own are the params that are meant for steps of t.
func own(t *task.Task, params map[string]map[string]json.RawMessage) map[string]map[string]json.RawMessage {
	out := map[string]map[string]json.RawMessage{}
	for id, fields := range params {
		if _, ok := t.Index(id); ok {
			out[id] = fields
		}
	}
	return out
}
