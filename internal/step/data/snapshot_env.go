package data

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// SnapshotsPath is where snapshot_env leaves what it stored, by step.
const SnapshotsPath = "metadata/env_snapshotted_universes"

// snapshot is what SnapshotsPath holds of a step.
type snapshot struct {
	ID           string   `json:"id"`
	Version      int      `json:"version"`
	Env          string   `json:"env_id"`
	EnvStep      string   `json:"env_step_id"`
	Environments []string `json:"environments"` // that are in it
	Original     string   `json:"original_universe_artifact_id,omitempty"`
}

// keptLog is what metadata/env_trajectory and metadata/env_changes hold: the universe whose metadata of that name is the log.
type keptLog struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Env     string `json:"env_id"`
	EnvStep string `json:"env_step_id"`
	Step    string `json:"step_id"`
}

// SnapshotEnv stores the data of a deployed environment as a new version of a universe.
type SnapshotEnv struct {
	store store.Store
	envs  Environments
}

// NewSnapshotEnv makes the executor.
func NewSnapshotEnv(s store.Store, e Environments) *SnapshotEnv { return &SnapshotEnv{s, e} }

var _ step.Preflighter = (*SnapshotEnv)(nil)

// Preflight refuses what can't be exported.
func (e *SnapshotEnv) Preflight(_ context.Context, d doc.Node, _ step.Plan) diag.List {
	var l diag.List
	refuse := func(field, summary, fix string) {
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "data.snapshot", Summary: summary, Fix: fix})
	}
	for _, f := range []string{"env_instance_id", "gateway_url"} {
		if !d.Get(f).IsNull() {
			refuse(f, "only environments that the task deploys itself can be kept", "name the environment in env_id")
		}
	}
	return l
}

// Run exports every environment, three at a time, and stores what they answered; nothing is stored when one fails.
func (e *SnapshotEnv) Run(ctx context.Context, c *step.Call) error {
	v, err := e.envs.Env(c.Run, c.Doc.Get("env_id").Text(), c.Doc.Get("env_step_id").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	id := c.Doc.Get("snapshot_id").Text()
	if id == "" {
		id = c.Run + "-" + path.Base(v.ID)
	}
	limit, _ := c.Doc.Get("export_timeout_seconds").Float()
	o := deploy.Snapshot{ID: id, Limit: time.Duration(limit * float64(time.Second))}
	o.Calls, _ = c.Doc.Get("include_env_trajectory").Bool()
	o.Changes, _ = c.Doc.Get("include_env_changes").Bool()
	missed := map[string]bool{deploy.KeptCalls: !o.Calls, deploy.KeptChanges: !o.Changes}
	o.Missed = func(what string, err error) {
		missed[what] = true
		c.Log.Warn("left out of the snapshot", "what", what, "env", v.ID, "error", err)
	}
	pin, kept, err := v.Snapshot(ctx, e.store, o)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, deploy.ErrExport):
		return &step.Error{Type: "SnapshotError", Err: err}
	default:
		return step.Infra(&step.Error{Type: "StoreError", Err: fmt.Errorf("store the snapshot: %w", err)})
	}
	for _, key := range []string{deploy.KeptCalls, deploy.KeptChanges} {
		if missed[key] {
			continue
		}
		if err := c.Out.Set("metadata/"+key, keptLog{pin.ID, pin.Version, v.ID, v.Step, c.Step}); err != nil {
			return err
		}
	}
	c.Log.Info("snapshot stored", "artifact", pin.ID, "version", pin.Version, "env", v.ID)
	return c.Out.Set(step.Child(SnapshotsPath, c.Step), snapshot{
		ID: pin.ID, Version: pin.Version, Env: v.ID, EnvStep: v.Step, Environments: kept, Original: c.Doc.Get("original_universe_artifact_id").Text(),
	})
}

var _ Environments = (*deploy.Envs)(nil)
