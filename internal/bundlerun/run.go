package bundlerun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/task"
)

// Run walks a bundle to its summary. What is wrong with the bundle, or can't run here, is a diag.Refusal that holds all of it, and nothing was
// written then. A task that fails is no error: the summary counts it. When ctx is cancelled, runs under way are cancelled and taken down, the
// others never start, and the summary says so.
func (e *Engine) Run(ctx context.Context, r Request, rep Reporter) (Summary, error) {
	s := newSummary(r)
	p, wrote, err := e.write(ctx, r, rep, &s, e.preflight)
	if err != nil {
		return s, err
	}
	s.LeftOut = p.LeftOut
	for _, ev := range p.Evals {
		res := EvalResult{ID: ev.Write.ID, Label: ev.Write.Label, Version: wrote.Versions[ev.Write]}
		for _, t := range ev.Tasks {
			res.Tasks = append(res.Tasks, t.Label)
		}
		s.Evals = append(s.Evals, res)
	}
	jobs, l := e.jobs(p, wrote, r)
	if err := l.Err(); err != nil { // preflight has told, unless the bundle changed meanwhile
		return s, err
	}
	if r.DryRun {
		s.dry(p, jobs)
		return s, nil
	}
	e.runAll(ctx, r.Concurrency, rep, &s, jobs)
	return s, nil
}

// dry lists what a run would do.
func (s *Summary) dry(p *bundle.Plan, jobs []job) {
	for _, j := range jobs {
		if j.ref.Trial == 1 {
			s.WouldRun = append(s.WouldRun, j.ref)
		}
	}
	refs := map[string]int{}
	for _, w := range p.Writes {
		maps.Copy(refs, w.StoreRefs)
	}
	for _, text := range slices.Sorted(maps.Keys(refs)) {
		s.Refs = append(s.Refs, StoreRef{text, refs[text]})
	}
}

// job is one run to do.
type job struct {
	ref     RunRef
	task    *task.Task
	eval    string // id of the first eval that names the task
	options runlog.Options
	// Of a run that is resumed: what the owner before left, and the task's version where it is another than the run was made with.
	prior   *run.Prior
	version int
}

// jobs are the runs in the order of their start: every task once, then every task again. Ids are given when a run starts.
func (e *Engine) jobs(p *bundle.Plan, wrote ledger.Result, r Request) ([]job, diag.List) {
	evals := map[*bundle.Write]string{}
	for _, ev := range slices.Backward(p.Evals) {
		for _, t := range ev.Tasks {
			evals[t] = ev.Write.ID
		}
	}
	var problems diag.List
	var round []job
	for _, w := range p.Run {
		t := *w.Task
		t.Version = wrote.Versions[w]
		full, l := e.withParams(&t, w.Label, r.Params)
		problems = append(problems, l...)
		o := r.options()
		o.Models = scripts(p, r.Models)
		if o.Params = own(&t, r.Params); len(o.Params) == 0 {
			o.Params = nil
		}
		round = append(round, job{task: full, eval: evals[w], options: o, ref: RunRef{Task: w.ID, Label: w.Label, Version: t.Version}})
	}
	return trials(round, max(r.K, 1)), problems
}

// trials are jobs so many times over.
func trials(round []job, k int) []job {
	out := make([]job, 0, k*len(round))
	for trial := range k {
		for _, j := range round {
			j.ref.Number, j.ref.Of, j.ref.Trial, j.ref.Trials = len(out)+1, k*len(round), trial+1, k
			out = append(out, j)
		}
	}
	return out
}

// runAll does the jobs, so many at once, and books their ends.
func (e *Engine) runAll(ctx context.Context, concurrency int, rep Reporter, s *Summary, jobs []job) {
	if s.Group == "" {
		s.Group = newGroup()
	}
	if concurrency < 1 {
		concurrency = DefaultConcurrency
	}
	results := make([]RunResult, len(jobs))
	slots := make(chan struct{}, concurrency)
	var wg sync.WaitGroup
	var stop halt
	for i, j := range jobs {
		results[i] = RunResult{RunRef: j.ref, Status: runlog.Cancelled}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		if ctx.Err() != nil {
			<-slots
			continue
		}
		if stop.holds(j) {
			<-slots
			s.Held++
			continue
		}
		if err := e.Machine.admit(ctx, rep); err != nil {
			<-slots
			if ctx.Err() == nil {
				results[i].Status = runlog.InfraFailed
				results[i].Failures = []run.Failure{{ErrorType: "ResourceError", Error: err.Error(), Fatal: true, Infra: true}}
				rep.RunEnded(results[i])
			}
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer e.Machine.gone()
			results[i] = e.runOne(ctx, rep, s, j)
			stop.look(results[i])
			rep.RunEnded(results[i])
		})
	}
	wg.Wait()
	s.Halted = stop.why
	e.book(ctx, s, results)
}

// book enters the ends of runs.
func (e *Engine) book(ctx context.Context, s *Summary, results []RunResult) {
	s.Stopped = ctx.Err() != nil
	s.Runs = results
	s.sum()
	for i := range results {
		s.TornDown += results[i].removed
		for _, id := range results[i].left {
			s.StillUp = append(s.StillUp, StillUp{results[i].ID, id})
		}
		if results[i].kept {
			s.Kept = append(s.Kept, e.Deploy.Live(results[i].ID)...)
		}
	}
	if s.Stopped {
		if err := e.Down(ctx, s); err != nil {
			e.Log.Warn("taking down what was kept", "error", err)
		}
	}
}

// runOne does one job: it makes the run's record, owns it, and runs the task.
func (e *Engine) runOne(ctx context.Context, rep Reporter, s *Summary, j job) RunResult {
	j.ref.ID = newID(j.ref.Task)
	owner, err := e.claim(ctx, s, j)
	for errors.Is(err, runlog.ErrExists) {
		j.ref.ID = newID(j.ref.Task)
		owner, err = e.claim(ctx, s, j)
	}
	if err != nil {
		res := RunResult{RunRef: j.ref, Status: runlog.InfraFailed}
		if ctx.Err() != nil {
			res.Status = runlog.Cancelled
			return res
		}
		res.Failures = []run.Failure{{ErrorType: "RecordError", Error: err.Error(), Fatal: true, Infra: true}}
		return res
	}
	rep.RunStarted(j.ref)
	return e.drive(ctx, rep, j, owner)
}

// drive runs a job whose run the caller owns, and releases it.
func (e *Engine) drive(ctx context.Context, rep Reporter, j job, owner runlog.Owner) RunResult {
	o := j.options
	got, err := e.runner().Run(ctx, run.Request{
		Run: j.ref.ID, Task: j.task, Owner: owner, Watch: watch{j.ref, rep}, Prior: j.prior, Version: j.version,
		Policy: deploy.Policy{Keep: o.Keep, Chain: o.Sandbox, Isolation: o.Isolation, Film: o.Film}, Parallel: o.Parallel, Trial: j.ref.Trial, Seed: o.Seed, Models: o.Models, Agent: o.Agent, Fixed: fixed(o.Params),
	})
	if err != nil {
		// The result tells people; an owner that was fenced has nothing to release.
		e.Log.Debug("a run could not be recorded to its end", "run", j.ref.ID, "error", err)
	}
	if err := owner.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, runlog.ErrFenced) {
		e.Log.Warn("release the run", "run", j.ref.ID, "error", err)
	}
	return RunResult{
		RunRef: j.ref, Started: true, Status: got.Status, Scores: got.Scores, Seconds: got.Seconds, Failures: got.Failures, Isolation: got.Isolation,
		Cost: got.Cost, TakenOver: got.TakenOver, Fenced: errors.Is(err, runlog.ErrFenced), removed: got.Removed, left: got.Left, kept: o.Keep,
	}
}

func (e *Engine) claim(ctx context.Context, s *Summary, j job) (runlog.Owner, error) {
	if err := e.Runs.Create(ctx, runlog.Meta{
		ID: j.ref.ID, Task: j.ref.Task, TaskVersion: j.ref.Version, Label: j.ref.Label, Bundle: s.Bundle,
		Group: s.Group, Eval: j.eval, Trial: j.ref.Trial, Options: j.options, Labels: labels(j),
	}); err != nil {
		return nil, fmt.Errorf("make the run's record: %w", err)
	}
	owner, err := e.Runs.Claim(ctx, j.ref.ID)
	if err != nil {
		return nil, fmt.Errorf("own the run: %w", err)
	}
	return owner, nil
}

// labels are what lists show of a run beside its task.
func labels(j job) map[string]string {
	out := map[string]string{}
	for role, model := range j.options.Models {
		out["model."+role] = model
	}
	if j.ref.Row != "" {
		out["seed"] = j.ref.Row
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// down takes runs down and books what was removed and what is left.
func (e *Engine) down(ctx context.Context, s *Summary, runs []string) error {
	var errs []error
	for _, id := range runs {
		gone, err := e.Deploy.Down(ctx, id)
		s.TornDown += gone.Removed
		for _, left := range gone.Left {
			s.StillUp = append(s.StillUp, StillUp{id, left})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// watch tells a Reporter of one run's steps.
type watch struct {
	ref RunRef
	rep Reporter
}

func (w watch) StepStarted(st run.StepStarted) { w.rep.StepStarted(w.ref, st) }
func (w watch) StepEnded(st run.StepEnded)     { w.rep.StepEnded(w.ref, st) }

// Working passes on what is told of work, to a Reporter that wants it.
func (w watch) Working(k deploy.Work) {
	if rep, ok := w.rep.(Worker); ok {
		rep.Working(w.ref, k)
	}
}

var (
	_ run.Watcher = watch{}
	_ run.Worker  = watch{}
)
