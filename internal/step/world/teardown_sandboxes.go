package world

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
)

// TornDownPath is where teardown_sandboxes leaves the ids of what it removed.
const TornDownPath = "metadata/torn_down_sandbox_ids"

// TeardownSandboxes removes sandboxes before the run's end. It does what it can and never fails for what it can't.
type TeardownSandboxes struct {
	boxes  Sandboxes
	envs   Environments
	agents Agents
}

// NewTeardownSandboxes makes the executor.
func NewTeardownSandboxes(b Sandboxes, e Environments, a Agents) *TeardownSandboxes {
	return &TeardownSandboxes{b, e, a}
}

// Run removes the named agents, environments and sandboxes, in the order named.
func (e *TeardownSandboxes) Run(ctx context.Context, c *step.Call) error {
	var done []string
	for _, n := range c.Doc.Get("agent_names").Items() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ids, err := e.agents.Remove(ctx, c.Run, n.Text())
		done = append(done, ids...)
		switch {
		case errors.Is(err, deploy.ErrNoAgent):
			c.Log.Warn("not deployed in this run", "agent", n.Text())
		case err != nil:
			c.Log.Warn("could not be removed; the run's end tries again", "agent", n.Text(), "error", err)
		default:
			c.Log.Info("removed", "agent", n.Text(), "sandboxes", len(ids))
		}
	}
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
		done = append(done, e.containers(ctx, c, n.Text())...)
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

// containers removes the containers that were started in a sandbox, and answers their ids.
func (e *TeardownSandboxes) containers(ctx context.Context, c *step.Call, sandbox string) []string {
	var done []string
	for _, raw := range c.State.List(step.ContainersPath) {
		var k step.Container
		if json.Unmarshal(raw, &k) != nil || k.Sandbox != sandbox {
			continue
		}
		switch id, err := e.boxes.Remove(ctx, c.Run, k.Box); {
		case errors.Is(err, deploy.ErrNoBox): // removed before
		case err != nil:
			c.Log.Warn("could not be removed; the run's end tries again", "container", k.Name, "error", err)
		default:
			done = append(done, id)
			c.Log.Info("removed", "container", k.Name, "id", id)
		}
	}
	return done
}
