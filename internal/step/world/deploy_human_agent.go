package world

import (
	"context"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// DeployHumanAgent registers an agent that runs elsewhere, such as a person behind a server, by its URL. Without one a person plays it who replies at the
// terminal of this process, or from another.
type DeployHumanAgent struct {
	agents Agents
	url    func(ctx context.Context) (string, error)
}

// NewDeployHumanAgent makes the executor. url is where it serves when the step doesn't say; "" for nowhere.
func NewDeployHumanAgent(a Agents, url func(ctx context.Context) (string, error)) *DeployHumanAgent {
	return &DeployHumanAgent{a, url}
}

var _ step.Preflighter = (*DeployHumanAgent)(nil)

// Preflight tells of a URL that is missing or none.
func (e *DeployHumanAgent) Preflight(ctx context.Context, d doc.Node, _ step.Plan) diag.List {
	text, err := e.address(ctx, d)
	if err == nil && text != "" {
		_, err = a2a.New(text, nil)
	}
	if err != nil {
		return diag.List{{Pos: d.Get("a2a_url").Pos(), Where: "a2a_url", Code: "world.agent", Summary: diag.Clean(err.Error())}}
	}
	return nil
}

func (e *DeployHumanAgent) address(ctx context.Context, d doc.Node) (string, error) {
	if text := d.Get("a2a_url").Text(); text != "" {
		return text, nil
	}
	return e.url(ctx)
}

// Ids that records give to an agent known by its URL alone, and to a person.
const (
	humanID  = "url"
	personID = "person"
)

// Run registers the agent and records it at deployed_agents and metadata/human_agents.
func (e *DeployHumanAgent) Run(ctx context.Context, c *step.Call) error {
	address, err := e.address(ctx, c.Doc)
	if err != nil {
		return &step.Error{Type: "ConfigError", Err: err}
	}
	if n := len(c.State.List(HumansPath)); n > 0 {
		return step.Errorf("ValueError", "the run has an agent that runs elsewhere already; it may have one")
	}
	name := c.Doc.Get("agent_name").Text()
	r := deploy.AgentRequest{Run: c.Run, Step: c.Step, Attempt: c.Attempt, Trial: c.Trial, Name: name, ID: humanID, URL: address}
	if address == "" {
		r.ID, r.Person = personID, true
	}
	if err := deployAgentAs(ctx, c, e.agents, r); err != nil {
		return err
	}
	return c.Out.Append(HumansPath, map[string]string{"agent_name": name, "a2a_url": address})
}

// HumansPath is where deploy_human_agent notes an agent that runs elsewhere.
const HumansPath = "metadata/human_agents"
