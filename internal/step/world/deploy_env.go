package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Environments is what these executors need of deployed environments.
type Environments interface {
	Check(ctx context.Context, override []string, isolation string, r deploy.EnvRequest) error
	Deploy(ctx context.Context, r deploy.EnvRequest) (*deploy.Env, error)
	Env(run, id, step string) (*deploy.Env, error)
	Remove(ctx context.Context, run, id, step string) ([]string, error)
}

// DeployEnv starts a stored environment and records it.
type DeployEnv struct {
	store envstore.Reader
	envs  Environments
}

// NewDeployEnv makes the executor.
func NewDeployEnv(s envstore.Reader, e Environments) *DeployEnv { return &DeployEnv{s, e} }

var _ step.Preflighter = (*DeployEnv)(nil)

// Preflight tells what can't be deployed here, of what is stored already and of what the run is about to write.
func (e *DeployEnv) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	refuse := func(field, summary, fix string) {
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "world.env", Summary: summary, Fix: fix})
	}
	for _, f := range []string{"env_state_type", "env_state_instance_id"} {
		if !d.Get(f).IsNull() {
			refuse(f, "states that outlive a deployment can't be attached by this version of agent-env", "leave it out: each deployment has a state of its own")
		}
	}
	version, _ := d.Get("env_version").Int()
	stored, err := envstore.ReadPlanned(ctx, e.store, p.Written, d.Get("env_id").Text(), int(version))
	switch {
	case errors.Is(err, store.ErrNotFound): // the step's references told
		return l
	case err != nil:
		refuse("env_id", diag.Clean(err.Error()), "")
		return l
	}
	return append(l, e.unfit(ctx, d, p, stored)...)
}

// unfit is why an environment can't be deployed on the providers of a step.
func (e *DeployEnv) unfit(ctx context.Context, d doc.Node, p step.Plan, stored envstore.Env) diag.List {
	if stored.Provider != env.ProviderGateway && stored.Provider != env.ProviderServer {
		return diag.List{{
			Pos: d.Get("env_id").Pos(), Where: "env_id", Code: "world.env",
			Summary: fmt.Sprintf("%s asks for the environment provider %s, which is not here", diag.Repr(stored.ID), diag.Repr(stored.Provider)),
			Fix:     "set its env_provider_type to gateway",
		}}
	}
	if err := e.envs.Check(ctx, p.Sandbox, p.Isolation, envRequest(d, stored)); err != nil {
		return diag.List{{Pos: d.Get("env_id").Pos(), Where: "env_id", Code: "world.provider", Summary: diag.Clean(err.Error()), Fix: "agent-env doctor shows what works on this machine"}}
	}
	return nil
}

// envRequest translates a step's fields, but for its place in a run. As with sandboxes, a limit that the author left out is the provider's to choose.
func envRequest(d doc.Node, stored envstore.Env) deploy.EnvRequest {
	s := spec(d)
	return deploy.EnvRequest{
		Env: stored, Type: d.Get("sandbox_type").Text(), Lease: s.Lease, CPU: s.CPU, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB, Labels: s.Labels,
		Consistent: d.Get("gateway_mode").Text() == "consistent",
	}
}

// Run deploys the environment, records it at deployed_envs, and loads what artifact_id names.
func (e *DeployEnv) Run(ctx context.Context, c *step.Call) error {
	version, _ := c.Doc.Get("env_version").Int()
	stored, err := envstore.Read(ctx, e.store, c.Doc.Get("env_id").Text(), int(version))
	if err != nil {
		return readError(err)
	}
	data, err := e.data(ctx, c)
	if err != nil {
		return err
	}
	r := envRequest(c.Doc, stored)
	r.Run, r.Step, r.Attempt = c.Run, c.Step, c.Attempt
	began := time.Now()
	v, err := e.envs.Deploy(ctx, r)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return step.Ended(ctx, err)
	case step.IsInfra(err):
		return &step.Error{Type: "SandboxError", Err: err}
	default:
		return &step.Error{Type: "DeploymentError", Err: err}
	}
	c.Log.Info("environment deployed", "env", v.ID, "instance", v.Instance, "took", time.Since(began).Round(time.Millisecond))
	rec, err := record(ctx, v, c.Doc.Get("metadata"))
	if err != nil {
		return err
	}
	if err := c.Out.Append(step.EnvsPath, rec); err != nil || data == nil {
		return err
	}
	return deploy.LoadFor(ctx, c, v, e.store, *data)
}

// data is what artifact_id names; nil when it names nothing.
func (e *DeployEnv) data(ctx context.Context, c *step.Call) (*envstore.Data, error) {
	id := c.Doc.Get("artifact_id").Text()
	if id == "" {
		return nil, nil
	}
	version, _ := c.Doc.Get("artifact_version").Int()
	d, err := envstore.ReadData(ctx, e.store, id, int(version))
	if err != nil {
		return nil, readError(err)
	}
	return &d, nil
}

func readError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, store.ErrCorrupt):
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	default:
		return &step.Error{Type: "ValueError", Err: err}
	}
}

// record is what the context document says of a deployed environment.
func record(ctx context.Context, v *deploy.Env, metadata doc.Node) (step.Env, error) {
	card, err := v.Gateway.Card(ctx)
	if err != nil {
		return step.Env{}, fmt.Errorf("read the card of %s: %w", diag.Repr(v.ID), err)
	}
	raw, err := json.Marshal(card)
	if err != nil {
		return step.Env{}, err
	}
	rec := step.Env{
		ID: v.ID, Version: v.Version, Type: v.Type, Provider: v.Provider, Step: v.Step, Instance: v.Instance, Card: raw,
		CardRead: time.Now().UTC().Format(timeFormat), Server: card.Name, Mode: v.Mode, SandboxIDs: map[string]string{},
		Created: v.Created.UTC().Format(timeFormat), ExpiresAt: v.Expires.UTC().Format(timeFormat), Metadata: json.RawMessage("{}"),
	}
	if rec.Metadata, err = merged(v, metadata); err != nil {
		return step.Env{}, err
	}
	for _, s := range v.Servers {
		if s.Foreign() != nil {
			continue // in no sandbox of ours
		}
		name := s.Name
		if s.Website {
			name += "-website-" + strings.TrimSuffix(s.Key, "_image")
		}
		rec.SandboxIDs[name], rec.Sandbox = s.Box.ID, s.Box.Provider
	}
	return rec, nil
}

// merged is the metadata of a deployed environment: what its plugin says, and over it what the step says.
func merged(v *deploy.Env, metadata doc.Node) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, s := range v.Servers {
		if f := s.Foreign(); f != nil && len(f.Metadata) > 0 {
			if err := json.Unmarshal(f.Metadata, &all); err != nil {
				return nil, fmt.Errorf("read what the plugin says of %s: %w", diag.Repr(v.ID), err)
			}
		}
	}
	if len(all) == 0 && metadata.Kind() == doc.Object {
		return doc.JSON(metadata), nil
	}
	for name, n := range metadata.Members() {
		all[name] = doc.JSON(n)
	}
	return json.Marshal(all)
}
