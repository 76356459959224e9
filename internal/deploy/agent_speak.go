package deploy

import (
	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/sdk/wire"
)

// A2A is how the agent is spoken to over A2A, and the card that it showed when it started; ok is false for one that doesn't speak it.
func (a *Agent) A2A() (c *a2a.Client, card *wire.AgentCard, ok bool) {
	r, ok := a.Runner.(*a2aRunner)
	if !ok {
		return nil, nil, false
	}
	return r.client, &r.card, true
}
