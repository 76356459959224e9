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
	jobs := jobs(p, wrote, max(r.K, 1))
	if r.DryRun {
		s.dry(p, jobs)
		return s, nil
	}
	e.runAll(ctx, r, rep, &s, jobs)
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
	ref  RunRef
	task *task.Task
	eval string // id of the first eval that names the task
}

// jobs are the runs in the order of their start: every task once, then every task again. Ids are given when a run starts.
func jobs(p *bundle.Plan, wrote ledger.Result, trials int) []job {
	evals := map[*bundle.Write]string{}
	for _, ev := range slices.Backward(p.Evals) {
		for _, t := range ev.Tasks {
			evals[t] = ev.Write.ID
		}
	}
	var out []job
	for trial := 1; trial <= trials; trial++ {
		for _, w := range p.Run {
			t := *w.Task
			t.Version = wrote.Versions[w]
			out = append(out, job{task: &t, eval: evals[w], ref: RunRef{
				Number: len(out) + 1, Of: trials * len(p.Run), Task: w.ID, Label: w.Label, Version: t.Version, Trial: trial, Trials: trials,
			}})
		}
	}
	return out
}

// runAll does the jobs, so many at once, and books their ends.
func (e *Engine) runAll(ctx context.Context, r Request, rep Reporter, s *Summary, jobs []job) {
	s.Group = newGroup()
	concurrency := r.Concurrency
	if concurrency < 1 {
		concurrency = DefaultConcurrency
	}
	results := make([]RunResult, len(jobs))
	slots := make(chan struct{}, concurrency)
	var wg sync.WaitGroup
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
		wg.Go(func() {
			defer func() { <-slots }()
			results[i] = e.runOne(ctx, r, rep, s, j)
			rep.RunEnded(results[i])
		})
	}
	wg.Wait()
	s.Stopped = ctx.Err() != nil
	s.Runs = results
	s.sum()
	for i := range results {
		s.TornDown += results[i].removed
		for _, id := range results[i].left {
			s.StillUp = append(s.StillUp, StillUp{results[i].ID, id})
		}
		if r.Keep && results[i].Started {
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
func (e *Engine) runOne(ctx context.Context, r Request, rep Reporter, s *Summary, j job) RunResult {
	j.ref.ID = newID(j.ref.Task)
	owner, err := e.claim(ctx, r, s, j)
	for errors.Is(err, runlog.ErrExists) {
		j.ref.ID = newID(j.ref.Task)
		owner, err = e.claim(ctx, r, s, j)
	}
	res := RunResult{RunRef: j.ref, Started: true}
	if err != nil {
		res.Status, res.Started = runlog.InfraFailed, false
		if ctx.Err() != nil {
			res.Status = runlog.Cancelled
			return res
		}
		res.Failures = []run.Failure{{ErrorType: "RecordError", Error: err.Error(), Fatal: true, Infra: true}}
		return res
	}
	rep.RunStarted(j.ref)
	got, err := e.runner().Run(ctx, run.Request{
		Run: j.ref.ID, Task: j.task, Owner: owner, Watch: watch{j.ref, rep},
		Policy: deploy.Policy{Keep: r.Keep, Chain: r.Sandbox, Isolation: r.Isolation},
	})
	if err != nil {
		// The result says so too; an owner that was fenced has nothing to release.
		e.Log.Warn("a run could not be recorded to its end", "run", j.ref.ID, "error", err)
	}
	if err := owner.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, runlog.ErrFenced) {
		e.Log.Warn("release the run", "run", j.ref.ID, "error", err)
	}
	res.Status, res.Scores, res.Seconds, res.Failures = got.Status, got.Scores, got.Seconds, got.Failures
	res.Isolation, res.removed, res.left = got.Isolation, got.Removed, got.Left
	return res
}

func (e *Engine) claim(ctx context.Context, r Request, s *Summary, j job) (runlog.Owner, error) {
	if err := e.Runs.Create(ctx, runlog.Meta{
		ID: j.ref.ID, Task: j.ref.Task, TaskVersion: j.ref.Version, Label: j.ref.Label, Bundle: r.Source.Root,
		Group: s.Group, Eval: j.eval, Trial: j.ref.Trial,
	}); err != nil {
		return nil, fmt.Errorf("make the run's record: %w", err)
	}
	owner, err := e.Runs.Claim(ctx, j.ref.ID)
	if err != nil {
		return nil, fmt.Errorf("own the run: %w", err)
	}
	return owner, nil
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

var _ run.Watcher = watch{}
