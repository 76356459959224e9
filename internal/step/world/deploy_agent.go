package world

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Agents is what these executors need of deployed agents.
type Agents interface {
	Check(ctx context.Context, override []string, isolation string, r deploy.AgentRequest) error
	Deploy(ctx context.Context, r deploy.AgentRequest) (*deploy.Agent, error)
	Remove(ctx context.Context, run, name string) ([]string, error)
}

// DeployAgent starts an agent and connects it to environments of the run.
type DeployAgent struct {
	agents Agents
	store  envstore.Reader
}

// NewDeployAgent makes the executor.
func NewDeployAgent(a Agents, s envstore.Reader) *DeployAgent { return &DeployAgent{a, s} }

var _ step.Preflighter = (*DeployAgent)(nil)

// Preflight tells what can't be done here: fields that this version doesn't serve, and agents that it can't deploy.
func (e *DeployAgent) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	refuse := func(field, summary, fix string) {
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "world.agent", Summary: summary, Fix: fix})
	}
	if on, _ := d.Get("enable_docker").Bool(); on {
		refuse("enable_docker", "agents get no container engine of their own: one inside a sandbox would need a privileged container, which is no sandbox", "leave it out; run_docker_container starts containers beside the agent, in which steps work")
	}
	recorded := d.Get("agent_changelog_object_url")
	if id, version, ok := step.ParseChangelogURL(recorded.Text()); !recorded.IsNull() && !ok {
		refuse("agent_changelog_object_url", diag.Repr(recorded.Text())+" is no address of recorded changes", "name them as artifact:ID or artifact:ID@VERSION, as runs that record them tell")
	} else if ok && p.Type != nil {
		if typ := p.Type(ctx, ref.Artifact, id, version); typ != "" && typ != artifact.FileUniverse {
			refuse("agent_changelog_object_url", diag.Repr(id)+" is of type "+typ+" in the store", "name a universe of files in which changes were recorded")
		}
	}
	if !d.Get("agent_snapshot_target_context_id").IsNull() && d.Get("agent_snapshot_files_artifact_id").IsNull() && recorded.IsNull() {
		refuse("agent_snapshot_target_context_id", "there is nothing to restore into a conversation", "set agent_snapshot_files_artifact_id too")
	}
	r, err := agentRequest(d, p.Agent)
	if err != nil {
		refuse("skills", diag.Clean(err.Error()), "")
	}
	switch err := e.agents.Check(ctx, p.Sandbox, p.Isolation, r); {
	case err == nil:
	case errors.Is(err, store.ErrNotFound) && p.Type != nil && p.Type(ctx, ref.Agent, r.ID, r.Version) != "": // the run writes it
	default:
		refuse("a2a_agent_id", diag.Clean(err.Error()), "")
	}
	return l
}

// agentRequest translates a step's fields, but for its place in a run. chosen takes the place of the step's agent.
func agentRequest(d doc.Node, chosen string) (deploy.AgentRequest, error) {
	s := spec(d)
	version, _ := d.Get("a2a_agent_version").Int()
	r := deploy.AgentRequest{
		Name: d.Get("agent_name").Text(), ID: d.Get("a2a_agent_id").Text(), Version: int(version), EnvStep: d.Get("env_step_id").Text(),
		Settings: deploy.Settings{
			Description: d.Get("agent_description").Text(), Role: d.Get("role").Text(), SystemPrompt: d.Get("system_prompt").Text(),
		},
		BaseURL: d.Get("litellm_base_url").Text(), Sandbox: d.Get("sandbox_name").Text(), Type: d.Get("sandbox_type").Text(), Spec: s,
	}
	if r.Name != step.DefaultAgent {
		r.Settings.Name = r.Name
	}
	if chosen != "" {
		r.ID, r.Version = chosen, 0
	}
	for _, n := range d.Get("env_ids").Items() {
		r.Envs = append(r.Envs, n.Text())
	}
	r.Spec.Env = nil
	for k, v := range d.Get("env_vars").Members() {
		if r.Vars == nil {
			r.Vars = map[string]string{}
		}
		r.Vars[k] = v.Text()
	}
	var err error
	r.Skills, err = inlineSkills(d.Get("skills"))
	return r, err
}

// inlineSkills are skills that a step writes out: name, description, and the text of SKILL.md as body, skill_md or content.
func inlineSkills(list doc.Node) ([]deploy.Skill, error) {
	var out []deploy.Skill
	for i, n := range list.Items() {
		s := deploy.Skill{Name: n.Get("name").Text(), Description: n.Get("description").Text()}
		body := ""
		for _, f := range []string{"body", "skill_md", "content"} {
			if t := n.Get(f).Text(); t != "" {
				body = t
			}
		}
		if s.Name == "" || body == "" {
			return nil, step.Errorf("ValueError", "skills[%d]: a skill needs name, description and body, the text of its SKILL.md", i)
		}
		s.Files = []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte(frontmatter(s, n, body)))}
		out = append(out, s)
	}
	return out, nil
}

// frontmatter is a SKILL.md with the head that the format wants, where its text has none.
func frontmatter(s deploy.Skill, n doc.Node, body string) string {
	if strings.HasPrefix(strings.TrimSpace(body), "---") {
		return body
	}
	var b strings.Builder
	b.WriteString("---\n")
	line := func(key, v string) {
		if v != "" {
			q, _ := json.Marshal(v) // a string: it can't fail
			b.WriteString(key + ": " + string(q) + "\n")
		}
	}
	line("name", s.Name)
	line("description", s.Description)
	line("license", n.Get("license").Text())
	line("compatibility", n.Get("compatibility").Text())
	b.WriteString("---\n\n" + body)
	return b.String()
}

// Run deploys the agent and records it at deployed_agents.
func (e *DeployAgent) Run(ctx context.Context, c *step.Call) error {
	r, err := agentRequest(c.Doc, c.Agent)
	if err != nil {
		return err
	}
	r.Run, r.Step, r.Attempt, r.Trial = c.Run, c.Step, c.Attempt, c.Trial
	a, err := startAgent(ctx, c, e.agents, r)
	if err != nil {
		return err
	}
	err = e.restore(ctx, c, a)
	if err == nil {
		err = e.rewind(ctx, c, a)
	}
	if err == nil {
		err = e.record(ctx, c, a)
	}
	if err != nil {
		_, rerr := e.agents.Remove(context.WithoutCancel(ctx), c.Run, a.Name)
		return errors.Join(err, rerr)
	}
	return c.Out.Append(step.AgentsPath, agentRecord(a, r))
}

// restore gives a new agent the snapshot that the step names.
func (e *DeployAgent) restore(ctx context.Context, c *step.Call, a *deploy.Agent) error {
	id := c.Doc.Get("agent_snapshot_files_artifact_id").Text()
	if id == "" {
		return nil
	}
	version, _ := c.Doc.Get("agent_snapshot_files_artifact_version").Int()
	pin, conversation, err := a.Restore(ctx, e.store, id, int(version), c.Doc.Get("agent_snapshot_target_context_id").Text())
	if err != nil {
		return stateError(ctx, a, err, "go on from a snapshot", "SnapshotError")
	}
	c.Log.Info("agent restored", "agent", a.Name, "artifact", pin.ID, "version", pin.Version, "context", conversation)
	return c.Out.Append(step.LoadedSnapshotsPath, step.LoadedSnapshot{Agent: a.Name, Context: conversation, ID: pin.ID, Version: pin.Version})
}

// stateError is why an agent's state could not be recorded or given to it.
func stateError(ctx context.Context, a *deploy.Agent, err error, what, typ string) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case step.IsInfra(err):
		return err
	case errors.Is(err, store.ErrNotFound):
		return &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, deploy.ErrNotServed):
		return step.Errorf("NotServedError", "agent %s can't %s: %w", diag.Repr(a.Name), what, err)
	}
	return step.Errorf(typ, "agent %s: %w", diag.Repr(a.Name), err)
}

// rewind gives a new agent the changes that another one has recorded, up to a tool call.
func (e *DeployAgent) rewind(ctx context.Context, c *step.Call, a *deploy.Agent) error {
	id, version, ok := step.ParseChangelogURL(c.Doc.Get("agent_changelog_object_url").Text())
	if !ok {
		return nil
	}
	before := int64(-1)
	rec := step.ChangelogRewind{Agent: a.Name, Mode: step.TransferObjects}
	if n := c.Doc.Get("agent_changelog_toolcall_position_exclusive"); !n.IsNull() {
		before, _ = n.Int()
		rec.Before = &before
	}
	k, conversation, err := a.ApplyChangelog(ctx, e.store, id, version, before, c.Doc.Get("agent_snapshot_target_context_id").Text())
	if err != nil {
		return stateError(ctx, a, err, "go on from recorded changes", "ChangelogError")
	}
	c.Log.Info("recorded changes applied", "agent", a.Name, "artifact", k.ID, "version", k.Version, "increments", k.Increments, "context", conversation)
	rec.Context, rec.URL, rec.Increments = conversation, step.ChangelogURL(k.ID, k.Version), k.Increments
	return c.Out.Append(step.ChangelogRewindsPath, rec)
}

// record has the agent record what it changes, where the step wants that.
func (e *DeployAgent) record(ctx context.Context, c *step.Call, a *deploy.Agent) error {
	if on, _ := c.Doc.Get("enable_agent_changelog").Bool(); !on {
		return nil
	}
	log, err := a.EnableChangelog(ctx, step.AgentSnapshotID(c.Run, c.Step, "agent-changelog"))
	if err != nil {
		return stateError(ctx, a, err, "record its changes", "ChangelogError")
	}
	c.Log.Info("changes are recorded", "agent", a.Name, "artifact", log.ID, "roots", strings.Join(log.Roots, ", "))
	return c.Out.Append(step.AgentChangelogPath, step.AgentChangelog{
		Agent: a.Name, Step: c.Step, Roots: append([]string{}, log.Roots...), Mode: step.TransferObjects, URL: step.ChangelogURL(log.ID, 0),
	})
}

// deployAgentAs deploys and records an agent.
func deployAgentAs(ctx context.Context, c *step.Call, agents Agents, r deploy.AgentRequest) error {
	a, err := startAgent(ctx, c, agents, r)
	if err != nil {
		return err
	}
	return c.Out.Append(step.AgentsPath, agentRecord(a, r))
}

// startAgent deploys an agent.
func startAgent(ctx context.Context, c *step.Call, agents Agents, r deploy.AgentRequest) (*deploy.Agent, error) {
	began := time.Now()
	a, err := agents.Deploy(ctx, r)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, step.Ended(ctx, err)
	case step.IsInfra(err):
		return nil, err
	case errors.Is(err, deploy.ErrNoEnv), errors.Is(err, deploy.ErrManyEnvs), errors.Is(err, deploy.ErrNoBox):
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	case errors.Is(err, deploy.ErrTaken):
		return nil, &step.Error{Type: "ValueError", Err: err}
	default:
		return nil, &step.Error{Type: "DeploymentError", Err: err}
	}
	c.Log.Info("agent deployed", "agent", a.Name, "id", a.ID, "took", time.Since(began).Round(time.Millisecond))
	for _, o := range a.Beside() {
		if o.Role != a.Role {
			c.Log.Warn("two agents share a sandbox, so that each can act in the other's role; give one a sandbox of its own where that matters",
				"agent", a.Name, "role", a.Role, "beside", o.Name, "their_role", o.Role)
		}
	}
	return a, nil
}

// agentRecord is what the context document says of a deployed agent.
func agentRecord(a *deploy.Agent, r deploy.AgentRequest) step.Agent {
	rec := step.Agent{
		Name: a.Name, ID: a.ID, Version: a.Version, Step: a.Step, Instance: a.Instance, Role: a.Role, EnvIDs: []string{}, URL: a.URL, Card: a.Card,
		OnHost: a.InProcess(), Created: a.Created.UTC().Format(timeFormat),
	}
	if !a.Expires.IsZero() {
		rec.ExpiresAt = a.Expires.UTC().Format(timeFormat)
	}
	for _, v := range a.Envs {
		rec.EnvIDs = append(rec.EnvIDs, v.ID)
	}
	if b := a.OwnBox(); b != nil {
		rec.SandboxID, rec.Sandbox = b.ID, b.Provider
	}
	rec.Policy = policyOf(sandbox.Info{Network: r.Spec.Network, Egress: r.Spec.Egress})
	return rec
}
