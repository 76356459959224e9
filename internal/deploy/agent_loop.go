package deploy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// loopMaker starts the agent that runs in this process. Its commands run in its box alone, which is made with the first of them.
type loopMaker struct{}

func (loopMaker) Check(ctx context.Context, _ []string, isolation string, r AgentRequest) error {
	return nil // what it may never need isn't looked for
}

func (loopMaker) Start(_ context.Context, a *Agent, _ AgentRequest) (Runner, error) {
	return &loopRunner{agent: a, talks: map[string]*talk{}}, nil
}

// loopRunner is the built-in agent.
type loopRunner struct {
	agent *Agent

	mu       sync.Mutex
	settings Settings
	envs     []*Env
	servers  []toolServer
	skills   []heldSkill
	talks    map[string]*talk
}

// talk is one conversation. Its mutex is held during a turn.
type talk struct {
	sync.Mutex
	messages []model.Message
	ended    atomic.Pointer[[]model.Message] // messages as they were when the last turn ended; read without the mutex
}

func (r *loopRunner) Configure(_ context.Context, s Settings) error {
	if i := slices.IndexFunc(s.Tools, func(t string) bool { return !slices.Contains(boxToolNames(), t) }); i >= 0 {
		return &NotTaken{fmt.Sprintf("tool %s; it has %s", diag.Repr(s.Tools[i]), strings.Join(boxToolNames(), ", "))}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = s.or(r.settings)
	return nil
}

func (r *loopRunner) AddMCP(_ context.Context, m MCP) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Env != nil:
		r.envs = append(r.envs, m.Env)
	case m.Server != nil:
		r.servers = append(r.servers, toolServer{m.Name, m.Server})
	default:
		return fmt.Errorf("an MCP server outside of the run's environments %w", ErrNotServed)
	}
	return nil
}

func (r *loopRunner) AddSkill(ctx context.Context, s Skill) error {
	held, err := holdSkill(s)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if slices.ContainsFunc(r.skills, func(o heldSkill) bool { return o.Name == s.Name }) {
		r.mu.Unlock()
		return fmt.Errorf("the agent has a skill %s already", diag.Repr(s.Name))
	}
	r.skills = append(r.skills, held)
	r.mu.Unlock()
	return nil
}

// setPeers does nothing more: the tools look at whom the agent may ask.
func (r *loopRunner) setPeers(context.Context, []*Agent) error { return nil }

func (r *loopRunner) Close() error { return nil }

// talk is the conversation of an id, new when nobody knows it.
func (r *loopRunner) talk(id string) *talk {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.talks[id]
	if t == nil {
		t = &talk{}
		r.talks[id] = t
	}
	return t
}

func (r *loopRunner) Prompt(ctx context.Context, p Prompt) (Reply, error) {
	r.mu.Lock()
	s := p.Settings.or(r.settings)
	tools := &agentTools{agent: r.agent, envs: slices.Clone(r.envs), servers: slices.Clone(r.servers), skills: slices.Clone(r.skills), asked: s.Tools, conversation: p.Context}
	tools.peers, _ = r.agent.peers.all()
	r.mu.Unlock()
	var leftOut []string
	if s.Harness != "" {
		leftOut = append(leftOut, "harness")
	}
	if i := slices.IndexFunc(s.Tools, func(t string) bool { return !slices.Contains(boxToolNames(), t) }); i >= 0 {
		return Reply{}, step.Errorf("ValueError", "the agent has no tool %s; it has %s", diag.Repr(s.Tools[i]), strings.Join(boxToolNames(), ", "))
	}
	m, err := r.model(ctx, s.Model)
	if err != nil {
		err = &step.Error{Type: "ModelError", Err: err}
		if errors.Is(err, source.ErrNone) || errors.Is(err, store.ErrCorrupt) { // this says nothing of the agent
			err = step.Infra(err)
		}
		return Reply{}, err
	}
	parts, err := modelParts(p.Parts)
	if err != nil {
		return Reply{ErrorType: wire.AgentError, ErrorCode: "parts", ErrorMessage: err.Error()}, nil
	}
	t := r.talk(p.Context)
	t.Lock()
	defer t.Unlock()
	var mu sync.Mutex // peers may be asked side by side
	var spent model.Usage
	book := func(u model.Usage) {
		mu.Lock()
		defer mu.Unlock()
		spent = spent.Add(u)
		if p.Spent != nil {
			p.Spent(u)
		}
	}
	tools.asking = &peerTurns{turn: ctx, spent: book}
	a := loop.New(loop.Config{
		Model: m, Tools: tools, Record: p.Record, Ends: r.agent.all.o.Redact.Ends, MaxTurns: s.MaxTurns, Now: time.Now,
		Request: model.Request{
			Model: s.Model, System: tools.system(s.SystemPrompt), Effort: s.Effort, MaxThinking: s.MaxThinking, Schema: s.OutputFormat, Params: s.ModelParams,
			Variant: max(r.agent.Trial, 1) - 1,
		},
		Spent: book,
	}, t.messages)
	got, err := a.Turn(ctx, parts)
	t.messages = a.Messages()
	ended := slices.Clone(t.messages)
	t.ended.Store(&ended)
	out := Reply{Text: got.Text, Structured: got.Structured, ToolCalls: got.ToolCalls, Usage: spent, Model: s.Model, LeftOut: leftOut, Peers: tools.asking.turns()}
	var own *loop.Failure
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case errors.As(err, &own):
		out.ErrorType, out.ErrorCode, out.ErrorMessage = wire.AgentError, own.Code, own.Error()
	case model.Infra(err):
		return out, step.Infra(&step.Error{Type: "ModelError", Err: err})
	default:
		return out, err
	}
	if got.Stop == loop.StopTurns {
		out.ErrorType, out.ErrorCode = wire.AgentError, loop.StopTurns
		out.ErrorMessage = fmt.Sprintf("the agent had not finished after %d answers of its model, the most it may have", got.Answers)
	}
	return out, nil
}

func (r *loopRunner) model(ctx context.Context, name string) (model.Model, error) {
	models := r.agent.all.o.Models
	if name == "" {
		if _, err := models.Name(ctx, source.Agent, nil, ""); err != nil {
			return nil, err
		}
	}
	return models.Model(ctx, name, r.agent.req.BaseURL)
}

// modelParts are the parts of a message as a model is shown them.
func modelParts(in []wire.Part) ([]model.Part, error) {
	var out []model.Part
	for _, p := range in {
		switch {
		case p.Kind == wire.KindText:
			out = append(out, model.Part{Text: p.Text})
		case p.Kind == wire.KindData:
			out = append(out, model.Part{Text: string(p.Data)})
		case p.File != nil && strings.HasPrefix(p.File.MimeType, "image/") && p.File.Bytes != "":
			b, err := base64.StdEncoding.DecodeString(p.File.Bytes)
			if err != nil {
				return nil, fmt.Errorf("the file %s is not in base64", diag.Repr(p.File.Name))
			}
			out = append(out, model.Part{Media: p.File.MimeType, Data: b})
		case p.File != nil && p.File.Bytes != "":
			b, err := base64.StdEncoding.DecodeString(p.File.Bytes)
			if err != nil || !isText(b) {
				return nil, fmt.Errorf("the agent can't be shown the file %s of type %s: it takes texts and pictures", diag.Repr(p.File.Name), diag.Repr(p.File.MimeType))
			}
			out = append(out, model.Part{Text: fmt.Sprintf("File %s:\n%s", p.File.Name, b)})
		default:
			return nil, errors.New("the agent takes texts, data and pictures, and files by their content")
		}
	}
	return out, nil
}

func isText(b []byte) bool { return json.Valid(b) || strings.ToValidUTF8(string(b), "") == string(b) }

// heldSkill is a skill whose files are in memory.
type heldSkill struct {
	Skill
	texts map[string]string // by path
}

// maxSkill bounds one file of a skill that an agent in this process may read.
const maxSkill = 1 << 20

func holdSkill(s Skill) (heldSkill, error) {
	h := heldSkill{s, map[string]string{}}
	for _, f := range s.Files {
		if f.Open == nil || f.Link != "" || f.Size > maxSkill {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return h, err
		}
		b, err := io.ReadAll(io.LimitReader(r, maxSkill+1))
		r.Close()
		if err != nil {
			return h, err
		}
		h.texts[f.Path] = string(b)
	}
	if _, ok := h.texts["SKILL.md"]; !ok {
		return h, errors.New("a skill has a file SKILL.md")
	}
	return h, nil
}

var _ Maker = loopMaker{}
