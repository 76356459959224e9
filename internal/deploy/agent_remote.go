package deploy

import (
	"context"
	"fmt"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/diag"
)

// remoteMaker connects to an agent that runs elsewhere.
type remoteMaker struct{}

func (remoteMaker) Check(context.Context, []string, string, AgentRequest) error { return nil }

func (remoteMaker) Start(_ context.Context, _ *Agent, r AgentRequest) (Runner, error) {
	return nil, unsupported("agents by their URL can't be used by this version of agent-env")
}

// storedMaker finds how a stored agent is started.
func (g *Agents) storedMaker(_ context.Context, r AgentRequest) (Maker, error) {
	fix := "agent-env agent list shows those that there are"
	if near := agent.NearBuiltin(r.ID); near != "" {
		fix = "did you mean " + near + "?"
	}
	return nil, fmt.Errorf("%s: %w; %s", diag.Repr(r.ID), ErrUnknownAgent, fix)
}
