package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// SnapshotComputerEnv stores the files of a deployed computer and the data of its apps as a new version of one universe.
type SnapshotComputerEnv struct {
	store store.Store
	envs  Environments
}

// NewSnapshotComputerEnv makes the executor.
func NewSnapshotComputerEnv(s store.Store, e Environments) *SnapshotComputerEnv {
	return &SnapshotComputerEnv{s, e}
}

var _ step.Preflighter = (*SnapshotComputerEnv)(nil)

// Preflight refuses paths that no computer has.
func (e *SnapshotComputerEnv) Preflight(_ context.Context, d doc.Node, _ step.Plan) diag.List {
	var l diag.List
	for i, n := range d.Get("file_paths").Items() {
		if err := wire.CheckPath(n.Text()); err != nil {
			l.Add(diag.Problem{
				Pos: n.Pos(), Where: fmt.Sprintf("file_paths[%d]", i), Code: "data.snapshot", Summary: fmt.Sprintf("%s can't be a place in the home: %s", diag.Repr(n.Text()), err),
				Fix: "write it relative to the home of the computer's user",
			})
		}
	}
	return l
}

// Run exports the computer and every app that can be exported; nothing is stored when one fails. Those that hold nothing are left out.
func (e *SnapshotComputerEnv) Run(ctx context.Context, c *step.Call) error {
	v, err := e.envs.Env(c.Run, c.Doc.Get("env_id").Text(), c.Doc.Get("env_step_id").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	name, ok := v.Computer()
	if !ok {
		return step.Errorf("TypeError", "environment %s is no computer; snapshot_env stores the data of others", diag.Repr(v.ID))
	}
	limit, _ := c.Doc.Get("export_timeout_seconds").Float()
	o := deploy.Snapshot{ID: c.Doc.Get("snapshot_id").Text(), Limit: time.Duration(limit * float64(time.Second))}
	if o.Params, err = params(c.Doc, name); err != nil {
		return err
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
	c.Log.Info("snapshot stored", "artifact", pin.ID, "version", pin.Version, "env", v.ID, "environments", kept)
	return c.Out.Set(step.Child(SnapshotsPath, c.Step), snapshot{ID: pin.ID, Version: pin.Version, Env: v.ID, EnvStep: v.Step, Environments: kept})
}

// params are those of data/get by environment: what the step says of each, and file_paths for the computer alone.
func params(d doc.Node, computer string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for name, n := range d.Get("data_get_params").Members() {
		out[name] = doc.JSON(n)
	}
	paths := d.Get("file_paths")
	if paths.IsNull() || !paths.Exists() {
		return out, nil
	}
	own := map[string]json.RawMessage{}
	if raw, ok := out[computer]; ok {
		if err := json.Unmarshal(raw, &own); err != nil {
			return nil, step.Errorf("ValueError", "data_get_params of %s: %w", diag.Repr(computer), err)
		}
	}
	if _, twice := own["file_paths"]; twice {
		return nil, step.Errorf("ValueError", "file_paths is there twice: of the step, and in data_get_params of %s", diag.Repr(computer))
	}
	own["file_paths"] = doc.JSON(paths)
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	out[computer] = raw
	return out, nil
}
