package data

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// ServicesPath is where snapshot_agent_state leaves, as a text of JSON, where each environment's data is kept: "object:<digest>" by name.
const ServicesPath = "metadata/snapshot_json_url"

// SnapshotAgents is what the executor needs of deployed agents.
type SnapshotAgents interface {
	Agent(run, name string) (*deploy.Agent, error)
}

// SnapshotAgentState stores an agent's conversation and the files that it works on.
type SnapshotAgentState struct {
	store  store.Store
	agents SnapshotAgents
	envs   Environments
}

// NewSnapshotAgentState makes the executor.
func NewSnapshotAgentState(s store.Store, a SnapshotAgents, e Environments) *SnapshotAgentState {
	return &SnapshotAgentState{s, a, e}
}

var _ step.Preflighter = (*SnapshotAgentState)(nil)

// Preflight tells of an id that names something else.
func (e *SnapshotAgentState) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	id := d.Get("artifact_id").Text()
	if id == "" || p.Type == nil {
		return nil
	}
	if typ := p.Type(ctx, ref.Artifact, id, 0); typ != "" && typ != artifact.FileUniverse {
		return diag.List{{
			Pos: d.Get("artifact_id").Pos(), Where: "artifact_id", Code: "data.snapshot", Summary: diag.Repr(id) + " is of type " + typ + " in the store",
			Fix: "choose another id for the snapshot",
		}}
	}
	return nil
}

// Run saves the conversation of the prompt. An agent that can't be saved is an error only where the step names what is written.
func (e *SnapshotAgentState) Run(ctx context.Context, c *step.Call) error {
	a, err := e.agents.Agent(c.Run, c.Doc.Get("agent_name").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	id := c.Doc.Get("artifact_id").Text()
	named := id != ""
	if !named {
		id = step.AgentSnapshotID(c.Run, c.Step, "agent-state")
	}
	if err := a.Saves(); err != nil {
		if !named {
			c.Log.Warn("nothing is saved", "agent", a.Name, "error", err)
			return nil
		}
		return step.Errorf("NotServedError", "agent %s can't be saved: %w", diag.Repr(a.Name), err)
	}
	conversation, err := conversationOf(c, c.Doc.Get("prompt_id").Text(), a.Name)
	if err != nil {
		return err
	}
	o := deploy.AgentSnapshot{ID: id, Conversation: conversation, Missed: func(env string, err error) {
		c.Log.Warn("left out of the snapshot", "environment", env, "error", err)
	}}
	limit, _ := c.Doc.Get("timeout_seconds").Float()
	o.Limit = time.Duration(limit * float64(time.Second))
	if env := c.Doc.Get("env_id").Text(); env != "" {
		if o.Env, err = e.envs.Env(c.Run, env, ""); err != nil {
			return &step.Error{Type: "NotFoundError", Err: err}
		}
	}
	pin, services, err := a.Snapshot(ctx, e.store, o)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case step.IsInfra(err):
		return err
	case errors.Is(err, deploy.ErrExport):
		return &step.Error{Type: "SnapshotError", Err: err}
	default:
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	c.Log.Info("agent saved", "agent", a.Name, "artifact", pin.ID, "version", pin.Version)
	if len(services) > 0 {
		if err := e.publish(ctx, c, pin.ID, pin.Version, services); err != nil {
			return err
		}
	}
	return c.Out.Append(step.AgentSnapshotsPath, step.AgentSnapshot{
		ID: pin.ID, Version: pin.Version, Agent: a.Name, Context: conversation, Step: c.Step, Status: step.SnapshotOK, Final: true,
	})
}

// publish tells where each environment's data is.
func (e *SnapshotAgentState) publish(ctx context.Context, c *step.Call, id string, version int, services map[string]string) error {
	d, err := e.store.Get(ctx, store.Artifact, id, version)
	if err != nil {
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	urls := map[string]string{}
	for _, f := range files {
		for name, at := range services {
			if f.Path == at {
				urls[name] = step.Object{Digest: string(f.Digest), Size: f.Size}.URL()
			}
		}
	}
	b, err := json.Marshal(urls)
	if err != nil {
		return err
	}
	return c.Out.Set(ServicesPath, string(b))
}

// conversationOf is the conversation of a prompt that an agent answered.
func conversationOf(c *step.Call, prompt, agent string) (string, error) {
	for _, raw := range c.State.List(step.PromptsPath) {
		var p step.PromptResponse
		if err := json.Unmarshal(raw, &p); err != nil {
			return "", err
		}
		if p.ID != prompt {
			continue
		}
		if p.Agent != agent {
			return "", step.Errorf("ValueError", "prompt %s was answered by agent %s, not by %s", diag.Repr(prompt), diag.Repr(p.Agent), diag.Repr(agent))
		}
		return p.Context, nil
	}
	return "", step.Errorf("NotFoundError", "no prompt %s has been answered before this step", diag.Repr(prompt))
}
