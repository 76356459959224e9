package data

import (
	"context"
	"errors"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// environment gives a deployed environment the data of each source, in order. All sources are read before the first is loaded.
func (e *LoadArtifact) environment(ctx context.Context, c *step.Call, id string) error {
	v, err := e.envs.Env(c.Run, id, c.Doc.Get("env_step_id").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	from := sources(c.Doc)
	if step := c.Doc.Get("artifact_from_step_id").Text(); step != "" {
		made, err := snapshotOf(c, step)
		if err != nil {
			return err
		}
		from = append(from, made)
	}
	var data []envstore.Data
	var commands []envstore.Command
	for _, s := range from {
		if d, err := e.store.Get(ctx, store.Artifact, s.id, s.version); err == nil && d.Type == artifact.CLI {
			x, err := envstore.ReadCommand(ctx, e.store, s.id, s.version)
			if err != nil {
				return readError(err)
			}
			commands = append(commands, x)
			continue
		}
		d, err := envstore.ReadData(ctx, e.store, s.id, s.version)
		if err != nil {
			return readError(err)
		}
		data = append(data, d)
	}
	for _, d := range data {
		if err := deploy.LoadFor(ctx, c, v, e.store, d); err != nil {
			return err
		}
	}
	return e.install(ctx, c, v, commands)
}

// readError types the error of an artifact that can't be read.
func readError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, store.ErrCorrupt):
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	default:
		return &step.Error{Type: "TypeError", Err: err}
	}
}

// snapshotOf is what a snapshot step stored.
func snapshotOf(c *step.Call, id string) (source, error) {
	var rec snapshot
	known, err := c.State.Get(step.Child(SnapshotsPath, id), &rec)
	switch {
	case err != nil:
		return source{}, step.Errorf("ValueError", "what step '%s' stored can't be read: %w", id, err)
	case !known:
		return source{}, step.Errorf("NotFoundError", "step '%s' has stored no data of an environment: no snapshot_env of this id has ended before this one", id)
	}
	return source{c.Doc.Get("artifact_from_step_id"), "artifact_from_step_id", rec.ID, rec.Version}, nil
}
