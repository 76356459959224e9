package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
)

// RegisterEnvTriggers registers scripted events at an environment's gateway and may wait until they have fired.
type RegisterEnvTriggers struct {
	envs   Environments
	agents Agents
}

// NewRegisterEnvTriggers makes the executor. Agents of the run carry out what triggers say in words.
func NewRegisterEnvTriggers(e Environments, a Agents) *RegisterEnvTriggers {
	return &RegisterEnvTriggers{e, a}
}

// envTriggersRecord is an element of TriggersPath.
type envTriggersRecord struct {
	Env       string   `json:"env_id"`
	Added     []string `json:"trigger_ids"`
	Executor  string   `json:"executor_agent_name,omitempty"`
	Executors []string `json:"executor_agent_names,omitempty"` // that actions name
}

// executors puts the agents that carry out instructions into a registration: the step's, and those that actions name.
func (e *RegisterEnvTriggers) executors(ctx context.Context, c *step.Call, body map[string]any, rec *envTriggersRecord) error {
	for _, t := range c.Doc.Get("triggers").Items() {
		for _, a := range t.Get("actions").Items() {
			if name := a.Get("executor").Text(); name != "" && a.Get("type").Text() == "nl" && !slices.Contains(rec.Executors, name) {
				rec.Executors = append(rec.Executors, name)
			}
		}
	}
	if rec.Executor == "" && len(rec.Executors) == 0 {
		return nil
	}
	name, err := e.agents.Models().Name(ctx, source.Agent, c.Models, "")
	if err != nil && !errors.Is(err, source.ErrNone) {
		return &step.Error{Type: "ModelError", Err: err}
	}
	o := deploy.Errands{Model: name, Spent: func(u model.Usage) { c.Spent(step.Cost{USD: u.USD, InputTokens: u.Input, OutputTokens: u.Output}) }}
	if rec.Executor != "" {
		if body["executor"], err = e.executor(c, rec.Executor, o); err != nil {
			return err
		}
	}
	named := map[string]any{}
	for _, n := range rec.Executors {
		if named[n], err = e.executor(c, n, o); err != nil {
			return err
		}
	}
	if len(named) > 0 {
		body["executors"] = named
	}
	return nil
}

// executor is an agent of the run as the gateway is told of it.
func (e *RegisterEnvTriggers) executor(c *step.Call, name string, o deploy.Errands) (map[string]any, error) {
	a, err := e.agents.Agent(c.Run, name)
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	if a.Role == "" {
		return nil, step.Errorf("ValueError",
			"agent %s has no role of its own, so that its calls would fire triggers; name one in role of its deploy_agent step, and none of watch_roles", diag.Repr(name))
	}
	s, _ := c.Doc.Get("executor_timeout_seconds").Float()
	out := map[string]any{"a2a_url": a.TakesErrands(o), "role": a.Role, "timeout_seconds": s}
	if h := c.Doc.Get("executor_hours").Get(name); !h.IsNull() {
		out["hours"] = h.Any()
	}
	return out, nil
}

// pollTriggers is how often the step looks whether what it waits for has fired.
const pollTriggers = 100 * time.Millisecond

// Run registers the triggers, all or none, and waits for those of await_fired.
func (e *RegisterEnvTriggers) Run(ctx context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	body := map[string]any{"triggers": c.Doc.Get("triggers").Any()}
	if roles := c.Doc.Get("watch_roles"); roles.Len() > 0 {
		body["watch_roles"] = roles.Any()
	}
	rec := envTriggersRecord{Env: v.ID, Executor: c.Doc.Get("executor_agent_name").Text(), Executors: []string{}}
	if err := e.executors(ctx, c, body, &rec); err != nil {
		return err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	done, err := v.Gateway.RegisterTriggers(raw)
	if err != nil {
		return &step.Error{Type: "TriggerError", Err: err}
	}
	c.Log.Info("triggers registered", "env", v.ID, "triggers", strings.Join(done.Added, ", "))
	rec.Added = done.Added
	if err := c.Out.Append(TriggersPath, rec); err != nil {
		return err
	}
	var awaited []string
	for _, n := range c.Doc.Get("await_fired").Items() {
		awaited = append(awaited, n.Text())
	}
	if len(awaited) == 0 {
		return nil
	}
	s, _ := c.Doc.Get("await_timeout_seconds").Float()
	wait, cancel := context.WithTimeout(ctx, time.Duration(s*float64(time.Second)))
	defer cancel()
	return await(ctx, wait, v, awaited, s)
}

// await waits until every trigger has fired.
func await(ctx, wait context.Context, v *deploy.Env, ids []string, seconds float64) error {
	for {
		waiting, err := unfired(v.Gateway.TriggerState(), ids)
		if err != nil || len(waiting) == 0 {
			return err
		}
		t := time.NewTimer(pollTriggers)
		select {
		case <-t.C:
		case <-wait.Done():
			t.Stop()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return step.Errorf("TimeoutError", "after %gs these triggers have not fired: %s", seconds, strings.Join(waiting, ", "))
		}
	}
}

// unfired are those of ids that have not fired yet. A trigger that has failed or was cancelled never will.
func unfired(state map[string]any, ids []string) ([]string, error) {
	raw, err := json.Marshal(state["triggers"])
	if err != nil {
		return nil, err
	}
	var all []struct {
		ID     string
		Status string
		Fired  int `json:"fire_count"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	var out []string
	for _, t := range all {
		switch {
		case !slices.Contains(ids, t.ID) || t.Fired > 0:
		case t.Status == "failed" || t.Status == "cancelled":
			return nil, step.Errorf("TriggerError", "trigger %s will not fire: it is %s", diag.Repr(t.ID), t.Status)
		default:
			out = append(out, t.ID)
		}
	}
	return out, nil
}
