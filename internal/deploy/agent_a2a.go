package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/sdk/wire"
)

// a2aRunner speaks to an agent that serves A2A: in a box, or elsewhere. Prompts are made as turns allow: side by side where they are of several
// conversations and need the agent configured alike. What passes the doors of a box is told apart by asked.
type a2aRunner struct {
	agent     *Agent
	client    *a2a.Client
	card      wire.AgentCard
	box       guest.Box // nil for one elsewhere
	server    *server   // nil for one elsewhere
	transport *http.Transport
	model     string // where nothing else names one

	asked   asked // the prompts under way
	doors   doors
	modelAt string // where the agent finds its model in its box

	peerDoors map[*Agent]string
	ending    []func() // at Close

	turns turns

	mu       sync.Mutex
	settings Settings
	system   string // the system prompt that the agent was given last
}

// Configure sets what the agent's card lists. An agent that can't be given its system prompt is refused.
func (r *a2aRunner) Configure(ctx context.Context, s Settings) error {
	_, leave, err := r.turns.enter(ctx, "", "", nil)
	if err != nil {
		return err
	}
	defer leave()
	left, err := r.configure(ctx, s)
	if err != nil {
		return err
	}
	if slices.Contains(left, "system_prompt") {
		return &NotTaken{"system prompt"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = s
	return nil
}

// configure sets what the agent's card lists, and answers what it doesn't. A system prompt is sent when it isn't the one that the agent has.
func (r *a2aRunner) configure(ctx context.Context, s Settings) (left []string, err error) {
	r.mu.Lock()
	has := r.system
	r.mu.Unlock()
	op, ok := r.card.AgentOperation(wire.URNAgentConfig, "set")
	in := map[string]any{}
	for _, f := range []struct {
		name string
		v    any
		set  bool
	}{
		{"name", s.Name, s.Name != ""},
		{"description", s.Description, s.Description != ""},
		{"role", s.Role, s.Role != ""},
		{"system_prompt", s.SystemPrompt, s.SystemPrompt != has},
		{"model", s.Model, s.Model != ""},
		{"model_params", s.ModelParams, s.ModelParams != nil},
		{"effort", s.Effort, s.Effort != ""},
		{"harness", s.Harness, s.Harness != ""},
		{"max_turns", s.MaxTurns, s.MaxTurns > 0},
		{"max_thinking_tokens", s.MaxThinking, s.MaxThinking > 0},
		{"output_format", s.OutputFormat, s.OutputFormat != nil},
		{"agentenv_tools", s.Tools, s.Tools != nil},
		{"timeout_seconds", int(s.Timeout / time.Second), s.Timeout >= time.Second},
	} {
		switch {
		case !f.set:
		case ok && (op.Request == nil || op.Request.Takes(f.name)):
			in[f.name] = f.v
		case f.name != "role" && f.name != "name" && f.name != "description" && f.name != "timeout_seconds": // those are for the agent's own comfort
			left = append(left, f.name)
		}
	}
	if len(in) == 0 {
		return left, nil
	}
	if err := r.operation(ctx, wire.URNAgentConfig, "set", in, false); err != nil {
		return left, err
	}
	if _, ok := in["system_prompt"]; ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.system = s.SystemPrompt
	}
	return left, nil
}

// AddMCP opens a door to an environment in the agent's box and tells the agent of it.
func (r *a2aRunner) AddMCP(ctx context.Context, m MCP) error {
	if m.URL == "" {
		if r.box == nil {
			return fmt.Errorf("an agent that runs elsewhere can't reach environment %s: only agents in sandboxes of their own have doors to environments", diag.Repr(m.Name))
		}
		address, err := r.listen(ctx, envPort, m.Env.Gateway.Door(r.agent.Principal()))
		if err != nil {
			return err
		}
		m.URL = "http://" + address + wire.MCPPath
	}
	in := map[string]any{"url": m.URL}
	op, ok := r.card.AgentOperation(wire.URNMCPConfig, "add")
	if !ok {
		return fmt.Errorf("%s add %w", wire.URNMCPConfig, ErrNotServed)
	}
	takes := func(names ...string) bool { return op.Request == nil || op.Request.Takes(names...) }
	if takes("url", "name") && m.Name != "" {
		in["name"] = m.Name
	}
	headers := m.Headers
	if m.Role != "" {
		headers = map[string]string{wire.RoleHeader: m.Role}
	}
	if with := append(keys(in), "headers"); headers != nil && takes(with...) {
		in["headers"] = headers
	}
	return r.operation(ctx, wire.URNMCPConfig, "add", in, len(m.Headers) > 0)
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// AddSkill gives the agent the text of a skill. Its other files are put into its box where it has one.
func (r *a2aRunner) AddSkill(ctx context.Context, s Skill) error {
	held, err := holdSkill(s)
	if err != nil {
		return err
	}
	if len(s.Files) > 1 {
		if r.box == nil {
			return fmt.Errorf("a skill of several files %w", ErrNotServed)
		}
		if err := guest.Put(ctx, r.box, skillFolder+"/"+s.Name, s.Files); err != nil {
			return step.Infra(fmt.Errorf("put the skill into the agent's sandbox: %w", err))
		}
	}
	in := map[string]any{"name": s.Name, "description": s.Description, "skill_md": held.texts["SKILL.md"]}
	return r.operation(ctx, wire.URNSkillConfig, "add", in, false)
}

// listen serves a handler at an address of the agent's box until Close: at port, or the next free one.
func (r *a2aRunner) listen(ctx context.Context, port int, h http.Handler) (address string, err error) {
	if address, err = r.doors.openFrom(ctx, r.box, port, h); err != nil {
		return "", step.Infra(fmt.Errorf("open a door at %s of the agent's sandbox: %w", address, err))
	}
	return address, nil
}

// serveModel opens the door to the model. Between prompts nobody answers there.
func (r *a2aRunner) serveModel(ctx context.Context) (err error) {
	r.modelAt, err = r.listen(ctx, modelPort, &r.asked)
	return err
}

// Close ends the agent's program and its doors.
func (r *a2aRunner) Close() error {
	if r.server != nil {
		r.server.stop()
	}
	r.doors.close()
	for _, end := range r.ending {
		end()
	}
	if r.transport != nil {
		r.transport.CloseIdleConnections()
	}
	return nil
}

// Prompt configures the agent, sends it the message and waits for its task.
func (r *a2aRunner) Prompt(ctx context.Context, p Prompt) (Reply, error) {
	r.mu.Lock()
	own := r.settings
	r.mu.Unlock()
	s, told := p.Settings.or(own), p.Settings
	if s.Model == "" {
		s.Model = r.model
	}
	told.Model = s.Model
	if told.SystemPrompt == "" {
		told.SystemPrompt = own.SystemPrompt // the prompt before may have had another
	}
	group, leave, err := r.turns.enter(ctx, p.Context, r.beside(told), p.Queued)
	if err != nil {
		return Reply{}, err
	}
	defer leave()
	x := &exchanges{ctx: ctx, log: r.agent.all.exchangeLog(r.agent), record: p.Record.Record, spent: p.Spent}
	out, err := r.ask(ctx, p, s, x, func() ([]string, error) {
		return group.once(func() ([]string, error) { return r.configure(ctx, told) })
	})
	x.give(&out)
	return out, err
}

// beside is what a prompt has in common with those that may be made beside it; "" for one that is made alone: what the agent asks others, and what it changes,
// tells nobody of which prompt it is.
func (r *a2aRunner) beside(told Settings) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.box != nil && (len(r.peerDoors) > 0 || r.agent.changelog.Load() != nil) {
		return ""
	}
	return told.alike()
}

// ask makes a prompt whose turn it is, with settings s, after configure has told the agent of them.
func (r *a2aRunner) ask(ctx context.Context, p Prompt, s Settings, x *exchanges, configure func() ([]string, error)) (Reply, error) {
	k := &peerTurns{turn: ctx, spent: x.take}
	if r.box != nil { // elsewhere nobody asks models or others through this process
		proxy, err := r.agent.proxyFor(ctx, s, x, false)
		if err != nil {
			return Reply{}, &step.Error{Type: "ModelError", Err: err}
		}
		defer proxy.Close()
		defer r.asked.begin(&prompted{texts: textsOf(p.Parts), conversation: p.Context, proxy: proxy, peers: k})()
	}
	left, err := configure()
	if err != nil {
		return r.lost(ctx, Reply{Model: s.Model}, err)
	}
	out := Reply{LeftOut: left, Model: s.Model}
	if slices.Contains(left, "model") && r.box == nil {
		out.Model = ""
	}
	text := ""
	for _, part := range p.Parts {
		text += part.Text
	}
	if err := p.Record.Record(trajectory.Event{At: time.Now(), Kind: trajectory.Said, Source: trajectory.User, Text: text}); err != nil {
		return out, step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	task, err := r.client.Ask(ctx, wire.Message{MessageID: p.Task, Role: wire.RoleUser, Parts: p.Parts, ContextID: p.Context}, a2a.Wait{
		Every: p.Poll, Alive: r.alive,
	})
	out.Task, out.Peers = task.ID, k.turns()
	out.Usage = x.total()
	if err != nil {
		return r.lost(ctx, out, err)
	}
	r.take(&out, task, x)
	if x.count() == 0 {
		_ = p.Record.Record(trajectory.Event{At: time.Now(), Kind: trajectory.Answered, Model: out.Model, Text: out.Text}) // the reply says it too
	}
	r.native(ctx, &out, task.ID)
	return out, x.unanswered(&out)
}

// take reads the reply out of a task that ended.
func (r *a2aRunner) take(out *Reply, t wire.Task, x *exchanges) {
	reply := wire.ReadReply(t.Status.Message)
	out.Text, out.Structured = reply.Text, reply.StructuredOutput
	if reply.ToolCalls != nil {
		out.ToolCalls = int(*reply.ToolCalls)
	}
	if u := reply.Usage; u != nil && x.count() == 0 { // what passed the model's door is counted there
		if u.InputTokens != nil {
			out.Usage.Input = *u.InputTokens
		}
		if u.OutputTokens != nil {
			out.Usage.Output = *u.OutputTokens
		}
		if u.CostUSD != nil {
			out.Usage.USD, out.Usage.Priced = *u.CostUSD, true
		}
		if x.spent != nil {
			x.spent(out.Usage)
		}
	}
	if t.Status.State == wire.TaskCompleted {
		return
	}
	out.ErrorType, out.ErrorCode, out.ErrorMessage = reply.ErrorType, reply.ErrorCode, reply.ErrorMessage
	if out.ErrorType != wire.InfraError {
		out.ErrorType = wire.AgentError
	}
	if out.ErrorCode == "" {
		out.ErrorCode = t.Status.State
	}
	if out.ErrorMessage == "" {
		out.ErrorMessage = reply.Text
	}
}

// native asks for the agent's own record; an agent that has none is no worse for it.
func (r *a2aRunner) native(ctx context.Context, out *Reply, task string) {
	var got struct {
		Trajectory json.RawMessage `json:"trajectory"`
	}
	if task == "" { // it answered without one
		return
	}
	if err := r.client.Operation(ctx, &r.card, wire.URNTrajectory, "get", map[string]any{"task_id": task}, &got, false); err == nil && len(got.Trajectory) > 0 {
		out.Native, out.NativeFormat = got.Trajectory, "a2a-trajectory/v1"
	}
}

var _ Runner = (*a2aRunner)(nil)
