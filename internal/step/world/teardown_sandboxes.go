package world

import (
	"context"
	"errors"
	"slices"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// TornDownPath is where teardown_sandboxes leaves the ids of what it removed.
const TornDownPath = "metadata/torn_down_sandbox_ids"

// TeardownSandboxes removes sandboxes before the run's end. It does what it can and never fails for what it can't.
type TeardownSandboxes struct {
	boxes Sandboxes
	envs  Environments
}

// NewTeardownSandboxes makes the executor.
func NewTeardownSandboxes(b Sandboxes, e Environments) *TeardownSandboxes {
	return &TeardownSandboxes{b, e}
}

var _ step.Preflighter = (*TeardownSandboxes)(nil)

// Preflight refuses targets that can't exist yet.
func (e *TeardownSandboxes) Preflight(_ context.Context, d doc.Node, _ step.Plan) diag.List {
	var l diag.List
	if n := d.Get("agent_names"); n.Len() > 0 {
		l.Add(diag.Problem{
			Pos: n.Pos(), Where: "agent_names", Code: "world.target",
			Summary: "agents can't be deployed by this version of agent-env", Fix: "name environments and sandboxes, in env_ids and sandbox_names",
		})
	}
	return l
}

// Run removes the named environments and sandboxes, in the order named.
func (e *TeardownSandboxes) Run(ctx context.Context, c *step.Call) error {
	var done []string
	for _, n := range c.Doc.Get("env_ids").Items() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ids, err := e.envs.Remove(ctx, c.Run, n.Text(), "")
		done = append(done, ids...)
		switch {
		case errors.Is(err, deploy.ErrNoEnv):
			c.Log.Warn("not deployed in this run", "env", n.Text())
		case err != nil:
			c.Log.Warn("could not be removed; the run's end tries again", "env", n.Text(), "error", err)
		default:
			c.Log.Info("removed", "env", n.Text(), "sandboxes", len(ids))
		}
	}
	for _, n := range c.Doc.Get("sandbox_names").Items() {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, err := e.boxes.Remove(ctx, c.Run, n.Text())
		switch {
		case errors.Is(err, deploy.ErrNoBox):
			c.Log.Warn("not deployed in this run", "sandbox", n.Text())
		case err != nil:
			c.Log.Warn("could not be removed; the run's end tries again", "sandbox", n.Text(), "error", err)
		case !slices.Contains(done, id):
			done = append(done, id)
			c.Log.Info("removed", "sandbox", n.Text(), "id", id)
		}
	}
	for _, id := range done {
		if err := c.Out.Append(TornDownPath, id); err != nil {
			return err
		}
	}
	return nil
}
