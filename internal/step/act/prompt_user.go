package act

import (
	"context"
	"encoding/json"
	"errors"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// userFormat is what the user's agent answers unless the step says otherwise: what the user says next, and whether they are done.
const userFormat = `{"type":"object","properties":{"message":{"type":"string"},"done":{"type":"boolean"}},"required":["message","done"],"additionalProperties":false}`

// user is the agent that plays the user of a conversation.
type user struct{ turn }

// user finds the user's agent of a step with several turns; nil for one with a single prompt.
func (e *PromptAgent) user(ctx context.Context, c *step.Call, prompt string) (*user, error) {
	if most, _ := c.Doc.Get("max_conversation_turns").Int(); most < 2 {
		return nil, nil
	}
	a, err := e.agents.Agent(c.Run, c.Doc.Get("user_agent_name").Text())
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	s := deploy.Settings{OutputFormat: json.RawMessage(userFormat), Timeout: seconds(c.Doc, "user_agent_timeout_seconds")}
	if f := c.Doc.Get("user_output_format"); f.Kind() == doc.Object {
		s.OutputFormat = doc.JSON(f)
	}
	s.Model, err = chooseModel(ctx, e.agents.Models(), source.User, c.Models, c.Doc.Get("user_model").Text())
	if err != nil && !errors.Is(err, source.ErrNone) {
		return nil, &step.Error{Type: "ModelError", Err: err}
	}
	return &user{turn{e: e, c: c, agent: a, settings: s, context: newID(), prompt: prompt, limit: s.Timeout}}, nil
}

// answer is what the user says to a reply, or that they are done. A user's agent that fails is no failure of the agent under test.
func (u *user) answer(ctx context.Context, reply string) (text string, done bool, err error) {
	r, err := u.do(ctx, []wire.Part{wire.TextPart(reply)})
	u.number++
	if err != nil {
		return "", false, err
	}
	if r.ErrorType != "" {
		return "", false, step.Infra(step.Errorf("UserAgentError", "the user's agent %s failed: %s: %s", diag.Repr(u.agent.Name), r.ErrorCode, r.ErrorMessage))
	}
	raw := r.Structured
	if raw == nil {
		raw = json.RawMessage(r.Text)
	}
	var said struct {
		Message *string `json:"message"`
		Done    bool    `json:"done"`
	}
	if err := json.Unmarshal(raw, &said); err != nil || said.Message == nil && !said.Done {
		return "", false, step.Infra(step.Errorf("UserAgentError", "the user's agent %s answered no object of message and done", diag.Repr(u.agent.Name)))
	}
	if said.Done || said.Message == nil {
		return "", true, nil
	}
	return *said.Message, false, nil
}
