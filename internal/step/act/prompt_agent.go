package act

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/wire"
)

// Agents is what prompting needs of deployed agents.
type Agents interface {
	Agent(run, name string) (*deploy.Agent, error)
	Deploy(ctx context.Context, r deploy.AgentRequest) (*deploy.Agent, error)
	Remove(ctx context.Context, run, name string) ([]string, error)
	RecordPath(run, stepID string, attempt int, agent string) string
	Redactor() *redact.Redactor
	Models() *source.Models
}

// Objects keeps pieces of a run's record.
type Objects interface {
	Keep(ctx context.Context, run string, b []byte) (runlog.Object, error)
}

// PromptAgent sends an agent a message and keeps the reply, what it cost, and what the agent did.
type PromptAgent struct {
	agents  Agents
	envs    Environments
	objects Objects
	store   store.Store
}

// Environments is what prompting needs of deployed environments.
type Environments interface {
	Env(run, id, step string) (*deploy.Env, error)
}

// NewPromptAgent makes the executor. s takes snapshots.
func NewPromptAgent(a Agents, v Environments, o Objects, s store.Store) *PromptAgent {
	return &PromptAgent{a, v, o, s}
}

var _ step.Preflighter = (*PromptAgent)(nil)

// Preflight tells of models that nobody here could ask.
func (e *PromptAgent) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	check := func(field, role string) {
		name, err := chooseModel(ctx, e.agents.Models(), role, p.Models, d.Get(field).Text())
		if err == nil {
			err = e.agents.Models().Check(ctx, name, "")
		}
		if err != nil && (name != "" || !errors.Is(err, source.ErrNone)) {
			l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: "act.model", Summary: diag.Clean(err.Error())})
		}
	}
	check("model", source.Agent)
	if turns, _ := d.Get("max_conversation_turns").Int(); turns > 1 {
		check("user_model", source.User)
	}
	return append(l, e.unserved(d)...)
}

// unserved are fields that this version doesn't serve.
func (e *PromptAgent) unserved(d doc.Node) diag.List {
	var l diag.List
	if n := d.Get("user_a2a_url"); !n.IsNull() {
		if _, err := a2a.New(n.Text(), nil); err != nil {
			l.Add(diag.Problem{Pos: n.Pos(), Where: "user_a2a_url", Code: "act.prompt", Summary: diag.Clean(err.Error())})
		}
	}
	if on, _ := d.Get("live_trajectory").Bool(); on {
		l.Add(diag.Problem{
			Pos: d.Get("live_trajectory").Pos(), Where: "live_trajectory", Code: "act.prompt", Severity: diag.Hint,
			Summary: "what an agent does is always recorded while it works", Fix: "leave it out",
		})
	}
	return l
}

// chooseModel is the model of a role: what people chose for the run, else what the step says, else what the configuration does. source.ErrNone.
func chooseModel(ctx context.Context, m *source.Models, role string, chosen map[string]string, own string) (string, error) {
	if chosen[role] == "" && own != "" {
		return own, nil
	}
	return m.Name(ctx, role, chosen, own)
}

// Run prompts the agent.
func (e *PromptAgent) Run(ctx context.Context, c *step.Call) (err error) {
	a, err := e.agents.Agent(c.Run, c.Doc.Get("agent_name").Text())
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	settings, err := e.settings(ctx, c)
	if err != nil {
		return err
	}
	parts, text, err := message(c.Doc)
	if err != nil {
		return err
	}
	rec := step.PromptResponse{
		ID: c.Doc.Get("prompt_id").Text(), Step: c.Step, Agent: a.Name, Prompt: text, Context: c.Doc.Get("context_id").Text(), Model: settings.Model,
	}
	if rec.ID == "" {
		rec.ID = newID()
	}
	if rec.Context == "" {
		rec.Context = newID()
	}
	t := &turn{e: e, c: c, agent: a, settings: settings, context: rec.Context, prompt: rec.ID, limit: settings.Timeout}
	said, err := e.user(ctx, c, rec.ID)
	if err != nil {
		return err
	}
	if said != nil {
		rec.UserAgent = said.agent.Name
	}
	most, _ := c.Doc.Get("max_conversation_turns").Int()
	defer func() {
		if lerr := said.leave(ctx); lerr != nil {
			err = errors.Join(err, lerr)
		}
	}()
	shots, err := e.snapshots(ctx, c, a, rec.Context)
	if err != nil {
		return err
	}
	unfollow := a.Changelog().Follow(ctx)
	for err == nil {
		var reply deploy.Reply
		reply, err = t.do(ctx, parts)
		took := step.Turn{Message: text, Reply: reply.Text, Trajectory: t.kept, Peers: t.peers}
		take(&rec, reply)
		rec.Turns = append(rec.Turns, took)
		t.number++
		if err != nil || rec.ErrorType != "" || said == nil || t.number >= int(most) {
			break
		}
		shots.turn(ctx, t.number)
		var done bool
		last := &rec.Turns[len(rec.Turns)-1]
		text, done, err = said.answer(ctx, t.number, reply.Text)
		last.User = said.kept
		if done || err != nil {
			break
		}
		parts = []wire.Part{wire.TextPart(text)}
	}
	unfollow()
	serr := errors.Join(shots.end(ctx), e.changes(ctx, c, a))
	if err = e.end(c, &rec, err); err == nil {
		err = step.Keep(serr)
	}
	return err
}

// take puts a reply into the record.
func take(rec *step.PromptResponse, r deploy.Reply) {
	rec.Response, rec.Structured, rec.ToolCalls, rec.Session = r.Text, r.Structured, rec.ToolCalls+r.ToolCalls, r.Task
	rec.Usage.Input += r.Usage.Input
	rec.Usage.Output += r.Usage.Output
	if r.Usage.Priced {
		usd := r.Usage.USD
		if rec.Usage.USD != nil {
			usd += *rec.Usage.USD
		}
		rec.Usage.USD = &usd
	}
	rec.ErrorType, rec.ErrorCode, rec.ErrorMessage = r.ErrorType, r.ErrorCode, r.ErrorMessage
	if r.Model != "" {
		rec.Model = r.Model
	}
}

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// settings are what a step says of how the agent is to work.
func (e *PromptAgent) settings(ctx context.Context, c *step.Call) (deploy.Settings, error) {
	d := c.Doc
	s := deploy.Settings{
		SystemPrompt: d.Get("system_prompt").Text(), Effort: d.Get("effort").Text(), Harness: d.Get("harness").Text(), Timeout: seconds(d, "timeout_seconds"),
	}
	turns, _ := d.Get("max_turns").Int()
	thinking, _ := d.Get("max_thinking_tokens").Int()
	s.MaxTurns, s.MaxThinking = int(turns), int(thinking)
	for _, n := range d.Get("agentenv_tools").Items() {
		s.Tools = append(s.Tools, n.Text())
	}
	if f := d.Get("output_format"); f.Kind() == doc.Object {
		s.OutputFormat = doc.JSON(f)
	}
	for name, v := range d.Get("model_params").Members() {
		if s.ModelParams == nil {
			s.ModelParams = map[string]json.RawMessage{}
		}
		s.ModelParams[name] = doc.JSON(v)
	}
	var err error
	s.Model, err = chooseModel(ctx, e.agents.Models(), source.Agent, c.Models, d.Get("model").Text())
	if err != nil && !errors.Is(err, source.ErrNone) {
		return s, &step.Error{Type: "ModelError", Err: err}
	}
	return s, nil // without one the agent may bring its own
}

func seconds(d doc.Node, field string) time.Duration {
	v, _ := d.Get(field).Float()
	return time.Duration(v * float64(time.Second))
}

// message is what a step says to the agent, as parts and as text.
func message(d doc.Node) ([]wire.Part, string, error) {
	if n := d.Get("prompt"); !n.IsNull() {
		return []wire.Part{wire.TextPart(n.Text())}, n.Text(), nil
	}
	var parts []wire.Part
	var texts []string
	for i, n := range d.Get("parts").Items() {
		b := doc.JSON(n)
		if n.Get("kind").IsNull() {
			for _, kind := range []string{wire.KindText, wire.KindFile, wire.KindData} {
				if !n.Get(kind).IsNull() {
					b = doc.JSON(n.With("kind", kind))
				}
			}
		}
		var p wire.Part
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, "", step.Errorf("ValueError", "parts[%d] can't be read: %w", i, err)
		}
		parts = append(parts, p)
		switch {
		case p.Kind == wire.KindText:
			texts = append(texts, p.Text)
		case p.File != nil:
			texts = append(texts, fmt.Sprintf("[file %s]", p.File.Name))
		default:
			texts = append(texts, "[data]")
		}
	}
	return parts, strings.Join(texts, "\n"), nil
}

// end leaves the response and makes the step's outcome of how the prompt ended. What the agent did is kept whatever that was.
func (e *PromptAgent) end(c *step.Call, rec *step.PromptResponse, err error) error {
	for _, t := range rec.Turns {
		if t.Trajectory != nil {
			rec.Trajectory = t.Trajectory
			rec.TrajectoryURL = t.Trajectory.ATIF.URL()
			rec.URLs = append(rec.URLs, rec.TrajectoryURL)
		}
	}
	failed := rec.ErrorType != ""
	switch {
	case err != nil:
		rec.ErrorMessage = err.Error()
		rec.ErrorType = wire.InfraError
		if typed, ok := errors.AsType[*step.Error](err); ok {
			rec.ErrorCode = typed.Type
		}
	case failed:
		kind := rec.ErrorType
		err = step.Errorf(kind, "the agent %s failed: %s", diag.Repr(rec.Agent), describe(rec))
		if kind == wire.InfraError {
			err = step.Infra(err)
		}
	}
	if aerr := c.Out.Append(step.PromptsPath, rec); aerr != nil {
		return errors.Join(err, aerr)
	}
	if rec.Model != "" {
		if serr := c.Out.Set(step.Child("metadata/models/solver", c.Step), rec.Model); serr != nil {
			return errors.Join(err, serr)
		}
	}
	if err != nil {
		return step.Keep(err)
	}
	c.Log.Info("the agent replied", "agent", rec.Agent, "prompt", rec.ID, "tool_calls", rec.ToolCalls, "turns", len(rec.Turns))
	return nil
}

func describe(rec *step.PromptResponse) string {
	switch {
	case rec.ErrorMessage != "" && rec.ErrorCode != "":
		return rec.ErrorCode + ": " + rec.ErrorMessage
	case rec.ErrorMessage != "":
		return rec.ErrorMessage
	case rec.ErrorCode != "":
		return rec.ErrorCode
	default:
		return "it says no more"
	}
}

// turn is one message to an agent and what comes of it.
type turn struct {
	e        *PromptAgent
	c        *step.Call
	agent    *deploy.Agent
	settings deploy.Settings
	context  string
	prompt   string
	number   int // of the conversation, from 0
	limit    time.Duration
	hint     string // for a person
	kept     *step.Trajectory
	peers    []step.PeerTurn // that it asked in the last turn
}

// do makes the turn. Its trajectory is kept also when it fails.
func (t *turn) do(ctx context.Context, parts []wire.Part) (deploy.Reply, error) {
	c := t.c
	record := t.e.agents.RecordPath(c.Run, c.Step, c.Attempt, t.agent.Name)
	if record != "" && t.number > 0 {
		record = strings.TrimSuffix(record, ".jsonl") + fmt.Sprintf(".%d.jsonl", t.number)
	}
	keeping := context.WithoutCancel(ctx)
	f, err := live.Open(live.Options{Path: record, Redact: t.e.agents.Redactor(), Keep: func(_ string, b []byte) (string, error) {
		o, err := t.e.objects.Keep(keeping, c.Run, b)
		return step.Object(o).URL(), err
	}})
	if err != nil {
		return deploy.Reply{}, step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	defer f.Close()
	limited, cancel := context.WithTimeoutCause(ctx, t.limit, errTimeUp)
	defer cancel()
	reply, err := t.agent.Runner.Prompt(limited, deploy.Prompt{
		Settings: t.settings, Parts: parts, Context: t.context, Task: newID(), Poll: seconds(c.Doc, "poll_interval_seconds"), Record: f,
		Step: c.Step, Replies: c.Decisions, Hint: t.hint,
		Queued: func() { c.Log.Info("queued: the agent is busy with another prompt", "agent", t.agent.Name) },
		Spent:  func(u model.Usage) { c.Spent(step.Cost{USD: u.USD, InputTokens: u.Input, OutputTokens: u.Output}) },
	})
	if err != nil && errors.Is(context.Cause(limited), errTimeUp) && ctx.Err() == nil {
		reply.ErrorType, reply.ErrorCode = wire.AgentError, "timeout"
		reply.ErrorMessage = fmt.Sprintf("it had not answered after %s", t.limit)
		err = nil
	}
	if len(reply.LeftOut) > 0 {
		c.Log.Warn("the agent doesn't take these settings, so they are left out", "agent", t.agent.Name, "settings", strings.Join(reply.LeftOut, ", "))
	}
	var kerr error
	if t.kept, kerr = t.keep(keeping, t.agent, t.context, f.Events(), reply); kerr == nil {
		kerr = t.keepPeers(keeping, reply.Peers)
	}
	if kerr != nil {
		return reply, errors.Join(err, step.Infra(&step.Error{Type: "RecordError", Err: kerr}))
	}
	t.agent.Recorded(record)
	t.agent.Recorded(reply.ExchangesAt)
	return reply, err
}

// errTimeUp is the cause of a context whose turn has taken too long.
var errTimeUp = errors.New("the agent's time is up")

// keepPeers stores what the agents did that this one asked.
func (t *turn) keepPeers(ctx context.Context, asked []deploy.PeerTurn) error {
	t.peers = nil
	for _, p := range asked {
		kept, err := t.keep(ctx, p.Agent, p.Context, p.Events, p.Reply)
		if err != nil {
			return err
		}
		t.peers = append(t.peers, step.PeerTurn{
			Agent: p.Agent.Name, Message: p.Message, Reply: p.Reply.Text, ErrorType: p.Reply.ErrorType, ErrorCode: p.Reply.ErrorCode, Trajectory: kept,
		})
	}
	return nil
}

// keep stores what an agent did in a conversation.
func (t *turn) keep(ctx context.Context, a *deploy.Agent, conversation string, events []trajectory.Event, reply deploy.Reply) (*step.Trajectory, error) {
	extra := map[string]any{"agent_id": a.ID, "prompt_id": t.prompt, "run_id": t.c.Run, "step_id": t.c.Step}
	if _, ok := source.Script(reply.Model); ok {
		extra["scripted"] = true
	}
	raw, err := json.Marshal(extra)
	if err != nil {
		return nil, err
	}
	doc := trajectory.Fold(trajectory.AgentInfo{
		Name: path.Base(a.ID), Version: orUnknown(a.Release()), ModelName: reply.Model, Extra: raw,
	}, conversation, events)
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	out := &step.Trajectory{}
	o, err := t.e.objects.Keep(ctx, t.c.Run, b)
	if err != nil {
		return nil, fmt.Errorf("keep the trajectory: %w", err)
	}
	out.ATIF = step.Object(o)
	if reply.Native != nil {
		o, err := t.e.objects.Keep(ctx, t.c.Run, t.e.agents.Redactor().JSON(reply.Native))
		if err != nil {
			return nil, fmt.Errorf("keep the agent's own trajectory: %w", err)
		}
		out.Native, out.NativeFormat = new(step.Object(o)), reply.NativeFormat
	}
	if len(reply.Exchanges) > 0 {
		o, err := t.e.objects.Keep(ctx, t.c.Run, reply.Exchanges)
		if err != nil {
			return nil, fmt.Errorf("keep what the agent and its model said: %w", err)
		}
		out.Exchanges = new(step.Object(o))
	}
	return out, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
