package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/validate"
	"agentenv.internal/agentenv/internal/step/world"
)

// AgentTrial is an agent to check.
type AgentTrial struct {
	Agent   string // its id, or the last part of it
	Version int
	Model   string // "" is the configured one, or the agent's own
	Sandbox string // providers to try
	Env     string // a stored environment whose tools it has to call; "" leaves that out
	Timeout time.Duration
	Tell    func(deploy.Work) // of work that the deployment waits for; may be nil
}

// ValidateAgent deploys an agent, checks what every agent has to be able to do, and takes it down. It asks the agent's model. The error tells that the agent
// could not be deployed or asked.
func (a *App) ValidateAgent(ctx context.Context, t AgentTrial) (id string, out []Check, err error) {
	agents, err := a.getAgents(ctx)
	if err != nil {
		return "", nil, err
	}
	envs, err := a.getEnvs(ctx)
	if err != nil {
		return "", nil, err
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return "", nil, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return "", nil, err
	}
	if id, err = a.findAgent(ctx, t.Agent); err != nil {
		return "", nil, err
	}
	chain, err := a.Chain(ctx, t.Sandbox)
	if err != nil {
		return id, nil, err
	}
	run := "@local/validate-" + strings.ToLower(rand.Text()[:8])
	w.deploy.Open(run, deploy.Policy{Chain: chain, Tell: t.Tell})
	defer func() {
		_, derr := w.deploy.Down(context.WithoutCancel(ctx), run)
		err = errors.Join(err, derr)
	}()
	seconds := t.Timeout.Seconds()
	deployed := map[string]any{"id": "deploy", "type": "deploy_agent", "a2a_agent_id": id}
	if t.Version > 0 {
		deployed["a2a_agent_version"] = t.Version
	}
	steps := []trialStep{}
	if t.Env != "" {
		e, err := a.StoredEnv(ctx, t.Env, 0)
		if err != nil {
			return id, nil, err
		}
		steps = append(steps, trialStep{world.NewDeployEnv(s, envs), map[string]any{"id": "env", "type": "deploy_env", "env_id": e.ID}})
		deployed["env_ids"], deployed["role"] = []any{e.ID}, "validator"
	}
	steps = append(steps,
		trialStep{world.NewDeployAgent(agents, s), deployed},
		trialStep{act.NewPromptAgent(agents, envs, bundlerun.NewObjects(s), s), map[string]any{
			"id": "ask", "type": "prompt_agent", "prompt_id": "ask", "prompt": "Reply with one short sentence that says who you are.", "timeout_seconds": seconds,
		}})
	checks := validate.NewAgentValidators(agents)
	for _, typ := range []string{"verify_a2a_agent_card", "verify_a2a_agent_config_identity", "verify_a2a_core_protocol", "verify_a2a_trajectory", "verify_a2a_system_prompt"} {
		steps = append(steps, trialStep{checks[typ], trialFields(typ, id, seconds)})
	}
	if t.Env != "" {
		for _, typ := range []string{"verify_a2a_agent_mcp", "verify_a2a_role"} {
			steps = append(steps, trialStep{checks[typ], trialFields(typ, id, seconds)})
		}
	}
	tr := trial{run: run, models: map[string]string{}, log: a.opt.Log}
	if t.Model != "" {
		tr.models[source.Agent] = t.Model
	}
	for _, x := range steps {
		if err := tr.do(ctx, x); err != nil {
			return id, tr.checks, err
		}
	}
	return id, tr.checks, nil
}

func trialFields(typ, agent string, seconds float64) map[string]any {
	f := map[string]any{"id": typ, "type": typ, "a2a_agent_id": agent}
	switch typ {
	case "verify_a2a_core_protocol":
		f["prompt_id"] = "ask"
	case "verify_a2a_agent_mcp", "verify_a2a_system_prompt":
		f["timeout_seconds"] = seconds
	}
	return f
}

// trialStep is a step and what does it.
type trialStep struct {
	do     step.Executor
	fields map[string]any
}

// trial runs steps one after another, without a record. A prompt that fails is looked at by the checks.
type trial struct {
	run     string
	models  map[string]string
	log     *slog.Logger
	history step.History
	n       int
	checks  []Check
}

func (t *trial) do(ctx context.Context, x trialStep) error {
	typ := x.fields["type"].(string)
	kind, ok := step.Kinds().Get(typ)
	if !ok {
		return fmt.Errorf("there is no step type %s", diag.Repr(typ))
	}
	b, err := json.Marshal(x.fields)
	if err != nil {
		return err
	}
	tree, l := doc.ParseJSON("step", b)
	if l.HasErrors() {
		return l.Err()
	}
	c := &step.Call{
		Run: t.run, Step: x.fields["id"].(string), Attempt: 1, Trial: 1, Doc: kind.Value.Schema().Fill(tree.Root()), Out: &step.Diff{}, Log: t.log,
		State: t.history.View(func(int) bool { return true }), Models: t.models,
	}
	if err := x.do.Run(ctx, c); err != nil && (!step.IsKept(err) || step.IsInfra(err)) {
		return err
	}
	t.history.Commit(t.n, c.Out.Ops())
	t.n++
	v := t.history.View(func(i int) bool { return i == t.n-1 })
	for _, name := range v.Under(step.VerificationsPath) {
		check := Check{Name: name}
		if _, err := v.Get(step.Child(step.VerificationsPath, name), &check.Verification); err != nil {
			return err
		}
		t.checks = append(t.checks, check)
	}
	return nil
}
