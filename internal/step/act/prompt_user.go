package act

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// userFormat is what the user's agent answers unless the step says otherwise: what the user says next, and whether they are done.
const userFormat = `{"type":"object","properties":{"message":{"type":"string"},"done":{"type":"boolean"}},"required":["message","done"],"additionalProperties":false}`

// Where a prompt of several turns notes what triggers did, by step.
const (
	firingsPath     = "metadata/agent_trigger_firings"
	triggerLogPath  = "metadata/agent_trigger_state"
	envTriggersPath = "metadata/env_trigger_snapshots"
)

// user is the agent that plays the user of a conversation.
type user struct {
	turn
	own  bool              // it was connected to for this step alone
	envs map[string]string // with triggers that its own wait for
	// triggers tells that it was given rules of what it says: they are asked first, and the agent where none of them fires.
	triggers bool
	fired    []firedAt
	seen     []envsAt
}

type firedAt struct {
	Turn  int      `json:"turn"`
	Fired []string `json:"fired"`
}

type envsAt struct {
	Turn int                          `json:"turn"`
	Envs map[string]map[string]string `json:"envs"` // states by environment and trigger
}

// user finds the user's agent of a step with several turns; nil for one with a single prompt.
func (e *PromptAgent) user(ctx context.Context, c *step.Call, prompt string) (*user, error) {
	if most, _ := c.Doc.Get("max_conversation_turns").Int(); most < 2 {
		return nil, nil
	}
	s := deploy.Settings{OutputFormat: json.RawMessage(userFormat), Timeout: seconds(c.Doc, "user_agent_timeout_seconds")}
	if f := c.Doc.Get("user_output_format"); f.Kind() == doc.Object {
		s.OutputFormat = doc.JSON(f)
	}
	var err error
	s.Model, err = chooseModel(ctx, e.agents.Models(), source.User, c.Models, c.Doc.Get("user_model").Text())
	if err != nil && !errors.Is(err, source.ErrNone) {
		return nil, &step.Error{Type: "ModelError", Err: err}
	}
	u := &user{turn: turn{e: e, c: c, settings: s, context: newID(), prompt: prompt, limit: s.Timeout}}
	if at := c.Doc.Get("user_a2a_url").Text(); at != "" {
		u.own = true
		u.agent, err = e.agents.Deploy(ctx, deploy.AgentRequest{
			Run: c.Run, Step: c.Step, Attempt: c.Attempt, Trial: c.Trial, Name: "the user of " + c.Step + " " + rand.Text()[:8], ID: "url", URL: at,
		})
		if err != nil && !step.IsInfra(err) {
			err = &step.Error{Type: "DeploymentError", Err: err}
		}
		return u, err
	}
	if u.agent, err = e.agents.Agent(c.Run, c.Doc.Get("user_agent_name").Text()); err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	if u.agent.Person() {
		u.hint = endWord + " ends the conversation"
	}
	return u, u.readTriggers()
}

// readTriggers finds what the user's agent was given by steps before this one.
func (u *user) readTriggers() error {
	u.envs = map[string]string{}
	for _, raw := range u.c.State.List(step.AgentTriggersPath) {
		var r step.AgentTriggers
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if r.Agent != u.agent.Name {
			continue
		}
		u.triggers = true
		for _, env := range r.Envs {
			u.envs[env] = env
		}
	}
	return nil
}

// endWord is what a person says who is done.
const endWord = "/end"

// answer is what the user says to a reply, or that they are done. A user's agent that fails is no failure of the agent under test.
func (u *user) answer(ctx context.Context, turn int, reply string) (text string, done bool, err error) {
	u.kept = nil
	if u.triggers {
		text, done, fired, err := u.decide(ctx, turn, reply)
		if err != nil || fired {
			return text, done, err
		}
	}
	r, err := u.do(ctx, []wire.Part{wire.TextPart(reply)})
	u.number++
	if err != nil {
		return "", false, err
	}
	if r.ErrorType != "" {
		return "", false, step.Infra(step.Errorf("UserAgentError", "the user's agent %s failed: %s: %s", diag.Repr(u.agent.Name), r.ErrorCode, r.ErrorMessage))
	}
	if u.agent.Person() {
		return r.Text, strings.TrimSpace(r.Text) == endWord, nil
	}
	raw := r.Structured
	if raw == nil {
		raw = json.RawMessage(r.Text)
	}
	var said struct {
		Message *string `json:"message"`
		Done    bool    `json:"done"`
	}
	err = json.Unmarshal(raw, &said)
	if err != nil && slices.Contains(r.LeftOut, "output_format") && strings.TrimSpace(r.Text) != "" {
		return r.Text, false, nil // one that can't be told of a format says what the user says
	}
	if err != nil || said.Message == nil && !said.Done {
		return "", false, step.Infra(step.Errorf("UserAgentError", "the user's agent %s answered no object of message and done", diag.Repr(u.agent.Name)))
	}
	if said.Done || said.Message == nil {
		return "", true, nil
	}
	return *said.Message, false, nil
}

// maxDecided is what an agent's triggers take of a reply, in characters.
const maxDecided = 200_000

// decide asks the triggers; fired tells that one of them speaks for the user.
func (u *user) decide(ctx context.Context, turn int, reply string) (text string, done, fired bool, err error) {
	if r := []rune(reply); len(r) > maxDecided {
		reply = string(r[:maxDecided])
	}
	envs := map[string]map[string]string{}
	for id := range u.envs {
		if envs[id], err = u.envStates(id); err != nil {
			return "", false, false, err
		}
	}
	d, err := u.agent.Decide(ctx, deploy.Decision{Turn: turn, Message: reply, Context: u.context, Env: envs})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return "", false, false, context.Cause(ctx)
	default:
		return "", false, false, step.Infra(step.Errorf("UserAgentError", "the triggers of the user's agent %s failed: %w", diag.Repr(u.agent.Name), err))
	}
	u.fired = append(u.fired, firedAt{turn, append([]string{}, d.Fired...)})
	u.seen = append(u.seen, envsAt{turn, envs})
	var texts []string
	for _, p := range d.Parts {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), d.Done, d.Done || len(d.Fired) > 0, nil
}

// envStates are the states of an environment's triggers.
func (u *user) envStates(id string) (map[string]string, error) {
	v, err := u.e.envs.Env(u.c.Run, id, "")
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	raw, err := json.Marshal(v.Gateway.TriggerState()["triggers"])
	if err != nil {
		return nil, err
	}
	var all []struct{ ID, Status string }
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, t := range all {
		out[t.ID] = t.Status
	}
	return out, nil
}

// leave notes what triggers did, and lets go of an agent that was connected to for this step. u may be nil.
func (u *user) leave(ctx context.Context) error {
	if u == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if u.triggers {
		errs = append(errs, u.c.Out.Set(step.Child(firingsPath, u.c.Step), u.fired), u.c.Out.Set(step.Child(envTriggersPath, u.c.Step), u.seen))
		if log, err := u.agent.TriggerLog(ctx); err == nil {
			errs = append(errs, u.c.Out.Set(step.Child(triggerLogPath, u.c.Step), log))
		} else {
			u.c.Log.Warn("what the user's triggers did can't be read", "agent", u.agent.Name, "error", err)
		}
	}
	if u.own {
		_, err := u.e.agents.Remove(ctx, u.c.Run, u.agent.Name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
