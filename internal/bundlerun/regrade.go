package bundlerun

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
)

// RegradeOptions are which verifiers of a run to run again, and how.
type RegradeOptions struct {
	Steps   []string // none: every verifier
	Version int      // of the task, whose verifiers are taken; 0 is the run's own
	Judge   string   // the judges' model in place of the one that the run had, but for steps that step_params gave one; "" for those that the run had
}

// Regrade runs the verifiers of a run that has ended again, without the agent, from what the run has left. id is a whole run id.
func (e *Engine) Regrade(ctx context.Context, id string, o RegradeOptions) (run.Regraded, error) {
	sum, err := e.Runs.Get(ctx, id)
	if err != nil {
		return run.Regraded{}, err
	}
	switch {
	case !sum.Status.Ended():
		return run.Regraded{}, diag.List{{Code: "run.regrade", Summary: fmt.Sprintf("%s is %s", id, sum.Status), Fix: "a run that has ended can be graded again"}}.Err()
	case sum.Status == runlog.Cancelled:
		return run.Regraded{}, diag.List{{Code: "run.regrade", Summary: id + " was cancelled, so there is nothing whole to grade"}}.Err()
	}
	owner, err := e.Runs.Claim(ctx, id)
	if err != nil {
		return run.Regraded{}, err
	}
	out, err := e.regrade(ctx, sum, o, owner)
	return out, errors.Join(err, owner.Release(context.WithoutCancel(ctx)))
}

func (e *Engine) regrade(ctx context.Context, sum runlog.Summary, o RegradeOptions, owner runlog.Owner) (run.Regraded, error) {
	events, err := e.events(ctx, sum.ID)
	if err != nil {
		return run.Regraded{}, err
	}
	recorded := runlog.Fold(sum, events).TaskVersion
	version := o.Version
	if version == 0 {
		version = recorded
	}
	t, err := e.stored(ctx, sum.Task, version, sum.Options)
	if err != nil {
		return run.Regraded{}, err
	}
	models := maps.Clone(sum.Options.Models)
	if o.Judge != "" {
		if models == nil {
			models = map[string]string{}
		}
		models["judge"] = o.Judge
	}
	var l diag.List
	plan := step.Plan{Sandbox: sum.Options.Sandbox, Isolation: sum.Options.Isolation, Models: models, Fixed: fixed(sum.Options.Params), Type: e.types(nil)}
	for _, p := range e.runner().PreflightScores(ctx, t, sum.Label, plan, o.Steps) {
		l.Add(p)
	}
	if err := l.Err(); err != nil {
		return run.Regraded{}, err
	}
	alive, err := e.Deploy.Alive(ctx, sum.ID, boxes(events))
	if err != nil {
		return run.Regraded{}, err
	}
	q := run.RegradeRequest{
		Run: sum.ID, Task: t, Events: events, Owner: owner, Alive: alive, Only: o.Steps, Trial: sum.Trial, Seed: sum.Options.Seed, Models: models,
		Fixed: plan.Fixed,
	}
	e.Deploy.Open(sum.ID, deploy.Policy{Chain: sum.Options.Sandbox, Isolation: sum.Options.Isolation}) // for what verifiers make and remove
	if version != recorded {
		q.Version = version
	}
	return e.runner().Regrade(ctx, q)
}
