package verify

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/wire"
)

// Agents is what judges that are agents need of deployed agents.
type Agents interface {
	Check(ctx context.Context, override []string, isolation string, r deploy.AgentRequest) error
	Deploy(ctx context.Context, r deploy.AgentRequest) (*deploy.Agent, error)
	Agent(run, name string) (*deploy.Agent, error)
	Remove(ctx context.Context, run, name string) ([]string, error)
}

// DeployedJudges are agents as judges: one that the task has deployed, or one that is deployed for a step and goes with it.
type DeployedJudges struct {
	agents Agents
	models Models
}

// NewDeployedJudges makes them.
func NewDeployedJudges(a Agents, m Models) *DeployedJudges { return &DeployedJudges{a, m} }

var _ JudgeAgents = (*DeployedJudges)(nil)

// Check tells why an agent can't be deployed to judge here.
func (j *DeployedJudges) Check(ctx context.Context, d doc.Node, p step.Plan) error {
	if d.Get("agent_name").Text() != "" {
		return nil // its own step tells
	}
	return j.agents.Check(ctx, p.Sandbox, p.Isolation, request(d))
}

func request(d doc.Node) deploy.AgentRequest {
	return deploy.AgentRequest{ID: d.Get("judge_a2a_agent_id").Text(), Type: d.Get("judge_sandbox_type").Text()}
}

// Judge finds or deploys the agent.
func (j *DeployedJudges) Judge(ctx context.Context, c *step.Call) (model.Model, string, func(context.Context) error, error) {
	stay := func(context.Context) error { return nil }
	if name := c.Doc.Get("agent_name").Text(); name != "" {
		a, err := j.agents.Agent(c.Run, name)
		if err != nil {
			return nil, "", stay, &step.Error{Type: "NotFoundError", Err: err}
		}
		return asked{a}, "agent " + name, stay, nil
	}
	r := request(c.Doc)
	r.Run, r.Step, r.Attempt, r.Trial, r.Name = c.Run, c.Step, c.Attempt, c.Trial, "judge of "+c.Step
	thinking, _ := c.Doc.Get("max_thinking_tokens").Int()
	r.Settings = deploy.Settings{Effort: c.Doc.Get("effort").Text(), MaxThinking: int(thinking)}
	name, err := j.models.Name(ctx, source.Judge, c.Models, c.Doc.Get("default_model").Text())
	switch {
	case err == nil:
		r.Settings.Model = name
	case !errors.Is(err, source.ErrNone): // without one the agent may bring its own
		return nil, "", stay, step.Infra(&step.Error{Type: "JudgeError", Err: err})
	}
	a, err := j.agents.Deploy(ctx, r)
	if err != nil {
		return nil, "", stay, step.Infra(&step.Error{Type: "JudgeError", Err: fmt.Errorf("deploy the judge: %w", err)})
	}
	label := a.ID
	if name != "" {
		label += " with " + name
	}
	return asked{a}, label, func(ctx context.Context) error {
		_, err := j.agents.Remove(ctx, c.Run, r.Name)
		return err
	}, nil
}

// asked is an agent that is asked as a model is: each request is a conversation of its own, which holds what was said before.
type asked struct{ agent *deploy.Agent }

// Generate makes one turn. An agent that fails is an error: a judge's failure says nothing of what it judges.
func (a asked) Generate(ctx context.Context, q *model.Request) (*model.Response, error) {
	record, err := live.Open(live.Options{})
	if err != nil {
		return nil, err
	}
	defer record.Close()
	r, err := a.agent.Runner.Prompt(ctx, deploy.Prompt{
		Settings: deploy.Settings{OutputFormat: q.Schema}, Parts: a.parts(q), Record: record, Spent: func(model.Usage) {},
	})
	if err != nil {
		return nil, err
	}
	if r.ErrorType != "" {
		return nil, fmt.Errorf("the judging agent failed: %s %s", r.ErrorType, r.ErrorMessage)
	}
	text := r.Text
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		text = string(r.Structured)
	}
	return &model.Response{Message: model.Text(model.Assistant, text), Stop: model.StopEnd, Usage: r.Usage, Model: r.Model, Tries: 1}, nil
}

// parts are the whole conversation as one message.
func (a asked) parts(q *model.Request) []wire.Part {
	parts := []wire.Part{wire.TextPart(q.System)}
	for i := range q.Messages {
		m := &q.Messages[i]
		if m.Role == model.Assistant {
			parts = append(parts, wire.TextPart("You answered before:\n"+m.Text()))
			continue
		}
		for _, p := range m.Parts {
			if p.Media == "" {
				parts = append(parts, wire.TextPart(p.Text))
				continue
			}
			parts = append(parts, wire.Part{Kind: wire.KindFile, File: &wire.File{
				Bytes: base64.StdEncoding.EncodeToString(p.Data), MimeType: p.Media, Name: "frame." + strings.TrimPrefix(p.Media, "image/"),
			}})
		}
	}
	if len(q.Schema) > 0 {
		parts = append(parts, wire.TextPart("Answer with JSON of this schema, and nothing else:\n"+string(q.Schema)))
	}
	return parts
}
