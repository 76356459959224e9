package exampleserver

import (
	"context"
	"strings"

	"agentenv.internal/agentenv/sdk/agent"
)

// Agents are the example agents there are, sorted.
func Agents() []string { return []string{"echo-agent"} }

// NewAgent makes an agent; nil when there is none of that name. lookup is where it reads A2A_HOST and A2A_PORT.
func NewAgent(name string, lookup func(string) (string, bool)) *agent.Agent {
	if name != "echo-agent" {
		return nil
	}
	return newEchoAgent(agent.WithLookup(lookup))
}

type echoConfig struct {
	SystemPrompt string `json:"system_prompt"`
}

// newEchoAgent answers with what it was told, without a model. "skills" and "servers" are answered with the names of what it was given.
func newEchoAgent(opts ...agent.Option) *agent.Agent {
	return agent.New("echo", func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		var out []string
		switch t.Text() {
		case "skills":
			for _, s := range t.Skills {
				out = append(out, s.Name)
			}
		case "servers":
			for _, s := range t.Servers {
				out = append(out, s.Name)
			}
		default:
			if p := agent.Config[echoConfig](t).SystemPrompt; p != "" {
				out = append(out, "["+p+"]")
			}
			out = append(out, t.Text())
		}
		return agent.Text(strings.Join(out, " ")), t.Record(map[string]string{"said": t.Text()})
	}, append(opts, agent.WithDescription("Answers with what it was told."), agent.WithConfig(echoConfig{}), agent.WithMCP(), agent.WithSkills("", nil),
		agent.WithTrajectory(), agent.WithPeers())...)
}
