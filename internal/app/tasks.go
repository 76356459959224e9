package app

import (
	"context"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/internal/taskstore"
)

// Tasks is the store's tasks and evals, for writing them by hand.
func (a *App) Tasks(ctx context.Context) (*taskstore.Store, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	return taskstore.New(s, a.kinds(ctx)), nil
}

// TaskOptions is how strictly tasks are read.
func (a *App) TaskOptions(allowUnknown bool) task.Options {
	return task.Options{AllowUnknownFields: allowUnknown || a.Config().AllowUnknownFields()}
}

// PreflightTask tells what of a task can't run on this machine. label names the task in problems.
func (a *App) PreflightTask(ctx context.Context, t *task.Task, label string) (diag.List, error) {
	e, err := a.Engine(ctx)
	if err != nil {
		return nil, err
	}
	runner := run.Runner{Executors: e.Executors, World: e.Deploy, Log: e.Log}
	return runner.Preflight(ctx, t, label, step.Plan{Type: func(ctx context.Context, k ref.Kind, id string, version int) string {
		d, err := e.Store.Get(ctx, store.Kind(k), id, version)
		if err != nil {
			return "" // not known: the task's own checks tell of it
		}
		return d.Type
	}}), nil
}
