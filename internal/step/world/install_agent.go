package world

import (
	"context"
	"errors"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// InstallAgent installs a stored agent into a sandbox or a container of the task, by the commands of its card.
type InstallAgent struct{ agents Agents }

// NewInstallAgent makes the executor.
func NewInstallAgent(a Agents) *InstallAgent { return &InstallAgent{a} }

var _ step.Preflighter = (*InstallAgent)(nil)

// Preflight tells of agents that can't be installed.
func (e *InstallAgent) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	r := installRequest(d, p.Agent)
	err := e.agents.Check(ctx, p.Sandbox, p.Isolation, r)
	if err == nil || errors.Is(err, store.ErrNotFound) && p.Type != nil && p.Type(ctx, ref.Agent, r.ID, r.Version) != "" { // the run writes it
		return nil
	}
	return diag.List{{Pos: d.Get("a2a_agent_id").Pos(), Where: "a2a_agent_id", Code: "world.agent", Summary: diag.Clean(err.Error())}}
}

// installRequest translates a step's fields, but for its place in a run and its sandbox. chosen takes the place of the step's agent.
func installRequest(d doc.Node, chosen string) deploy.AgentRequest {
	version, _ := d.Get("a2a_agent_version").Int()
	port, _ := d.Get("a2a_port").Int()
	r := deploy.AgentRequest{
		Name: d.Get("agent_name").Text(), ID: d.Get("a2a_agent_id").Text(), Version: int(version),
		Install: &deploy.Install{Port: int(port), Workspace: d.Get("workspace_dir").Text(), Container: d.Get("container_name").Text()},
	}
	if chosen != "" {
		r.ID, r.Version = chosen, 0
	}
	return r
}

// Run installs the agent, waits for its card and records it at deployed_agents.
func (e *InstallAgent) Run(ctx context.Context, c *step.Call) error {
	r := installRequest(c.Doc, c.Agent)
	box, err := step.TargetBox(c.State, c.Doc)
	if err != nil {
		return err
	}
	r.Run, r.Step, r.Attempt, r.Trial, r.Sandbox = c.Run, c.Step, c.Attempt, c.Trial, box
	a, err := startAgent(ctx, c, e.agents, r)
	if err != nil {
		return err
	}
	rec := agentRecord(a, r)
	rec.Container = c.Doc.Get("container_name").Text()
	return c.Out.Append(step.AgentsPath, rec)
}
