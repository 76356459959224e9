package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// RegisterAgentTriggers gives an agent that plays the user rules of what it says.
type RegisterAgentTriggers struct{ agents Agents }

// NewRegisterAgentTriggers makes the executor.
func NewRegisterAgentTriggers(a Agents) *RegisterAgentTriggers { return &RegisterAgentTriggers{a} }

// Run registers the triggers, all or none. Those of environments that they wait for must have been registered before.
func (e *RegisterAgentTriggers) Run(ctx context.Context, c *step.Call) error {
	a, err := e.agents.Agent(c.Run, c.Doc.Get("agent_name").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	rec := step.AgentTriggers{Step: c.Step, Agent: a.Name, Envs: []string{}}
	known, err := envTriggers(c.State)
	if err != nil {
		return err
	}
	for _, t := range c.Doc.Get("triggers").Items() {
		if err := awaits(t.Get("when"), known, &rec.Envs); err != nil {
			return step.Errorf("ValueError", "trigger %s: %w", diag.Repr(t.Get("id").Text()), err)
		}
	}
	raw, err := json.Marshal(c.Doc.Get("triggers").Any())
	if err != nil {
		return err
	}
	rec.Added, err = a.RegisterTriggers(ctx, raw)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case step.IsInfra(err):
		return err
	case errors.Is(err, deploy.ErrNotServed):
		return step.Errorf("NotServedError", "agent %s can't be given triggers: %w", diag.Repr(a.Name), err)
	default:
		return step.Errorf("TriggerError", "agent %s: %w", diag.Repr(a.Name), err)
	}
	c.Log.Info("triggers registered", "agent", a.Name, "triggers", strings.Join(rec.Added, ", "))
	return c.Out.Append(step.AgentTriggersPath, rec)
}

// envTriggers are the triggers that were registered at environments, by environment.
func envTriggers(v step.View) (map[string][]string, error) {
	out := map[string][]string{}
	for _, raw := range v.List(TriggersPath) {
		var r struct {
			Env string   `json:"env_id"`
			IDs []string `json:"trigger_ids"`
		}
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, err
		}
		out[r.Env] = append(out[r.Env], r.IDs...)
	}
	return out, nil
}

// awaits checks that what a condition waits for in environments is known, and notes those environments. Readers bound how deep it goes.
func awaits(when doc.Node, known map[string][]string, envs *[]string) error {
	if when.Get("type").Text() == "env_trigger" {
		env, id := when.Get("env_id").Text(), when.Get("trigger_id").Text()
		if !slices.Contains(known[env], id) {
			list := "none is"
			if n := known[env]; len(n) > 0 {
				list = "registered there: " + strings.Join(n, ", ")
			}
			return step.Errorf("ValueError", "no register_env_triggers step before this one has registered %s at %s; %s", diag.Repr(id), diag.Repr(env), list)
		}
		if !slices.Contains(*envs, env) {
			*envs = append(*envs, env)
		}
	}
	for _, sub := range when.Get("of").Items() {
		if err := awaits(sub, known, envs); err != nil {
			return err
		}
	}
	return nil
}
