package deploy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	builtin "agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/agent/cli"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// Ports of an agent's doors in its box: the first environment's, and the model's. Further ones, and those of further agents in one box, have the next
// that are free.
const (
	envPort   = 18765
	modelPort = 18766
)

// CLIMakers start the agents that are installed commands, by id.
func CLIMakers(e *Envs) map[string]Maker {
	out := map[string]Maker{}
	for _, p := range cli.Profiles() {
		out[builtin.BuiltinRoot+p.Name] = cliMaker{p, e.maker}
	}
	return out
}

type cliMaker struct {
	profile *cli.Profile
	maker   *maker
}

func (m cliMaker) Check(ctx context.Context, chain []string, isolation string, r AgentRequest) error {
	if r.Sandbox != "" {
		return nil // which is there by then, or not
	}
	spec := r.Spec
	spec.Isolation = isolation
	var refused []string
	for _, name := range chain {
		e, ok := m.maker.boxes.providers.Get(name)
		if !ok {
			refused = append(refused, m.maker.boxes.unknown(name))
			continue
		}
		c, checks := e.Value.(sandbox.Checker)
		if !checks {
			return nil
		}
		err := c.Check(ctx, spec)
		if err == nil {
			return nil
		}
		refused = append(refused, name+": "+oneLine(err))
	}
	return &Refused{refused}
}

func (m cliMaker) Start(ctx context.Context, a *Agent, r AgentRequest) (Runner, error) {
	shown := r.Sandbox == "" && !onSystem(m.profile.Command)
	if shown {
		h, err := m.maker.installed(ctx, r, m.profile)
		if err != nil {
			return nil, err
		}
		defer func() { _ = h.Release() }() // the box holds it
		a.req.Spec.Shown = append(slices.Clone(a.req.Spec.Shown), sandbox.Shown{From: h.Path(), At: cli.Folder, Hold: h.File()})
	}
	box, err := a.Box(ctx)
	if err != nil {
		return nil, err
	}
	c, err := m.maker.command(ctx, box, r, m.profile, shown)
	if err != nil {
		return nil, err
	}
	with, err := cli.FindRuntime(ctx, box, m.profile.Runtime, m.maker.places()...)
	if err != nil {
		return nil, missing(m.profile, err)
	}
	var vars []string
	for k, v := range r.Vars {
		vars = append(vars, k+"="+v)
	}
	slices.Sort(vars)
	run := &cliRunner{
		agent: a, box: box, profile: m.profile, note: c.note, log: a.all.exchangeLog(a), doors: doors{quiet: true}, names: []string{agent.PeerServer},
		cli: cli.New(m.profile, cli.Options{
			Box: box, Command: c.path, Runtime: with, Version: c.version, Env: vars,
			State: cli.StateFolder + "/" + a.Instance, // several agents may share a sandbox of the run
		}),
	}
	w, err := run.slot(ctx) // the first model's door stands from the beginning: what can't be opened is told now
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	run.leave(w)
	return run, nil
}

// cliRunner is an agent that is an installed command. Turns of several conversations are made side by side, each through a slot of its own.
type cliRunner struct {
	agent   *Agent
	box     guest.Box
	profile *cli.Profile
	cli     *cli.Agent
	note    string
	log     *exchangeLog

	doors doors
	turns turns

	mu       sync.Mutex
	settings Settings
	names    []string // of its servers
	free     []*slot
	ending   []func() // at Close
	peers    []*Agent
	peered   int // times that peers were named
}

// listen opens a door in the agent's box. It lives until Close.
func (r *cliRunner) listen(ctx context.Context, port int, h http.Handler) (address string, err error) {
	if address, err = r.doors.openFrom(ctx, r.box, port, h); err != nil {
		return "", step.Infra(fmt.Errorf("open the agent's door at %s of its sandbox: %w", address, err))
	}
	return address, nil
}

func (r *cliRunner) Close() error {
	r.doors.close()
	r.mu.Lock()
	ending := r.ending
	r.ending = nil
	r.mu.Unlock()
	for _, end := range ending {
		end()
	}
	return nil
}

func (r *cliRunner) Configure(_ context.Context, s Settings) error {
	if s.Harness != "" {
		return &NotTaken{"harness"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = s.or(r.settings)
	return nil
}

func (r *cliRunner) AddMCP(ctx context.Context, m MCP) error {
	if m.Env == nil {
		return fmt.Errorf("an MCP server outside of the run's environments %w", ErrNotServed)
	}
	r.mu.Lock()
	n := len(r.names)
	name := legal(m.Name)
	if slices.Contains(r.names, name) {
		name = legal(fmt.Sprintf("%s_%d", m.Name, n+1))
	}
	r.names = append(r.names, name)
	r.mu.Unlock()
	address, err := r.listen(ctx, envPort, m.Env.Gateway.Door(r.agent.Principal()))
	if err != nil {
		return err
	}
	return r.cli.AddServer(cli.Server{Name: name, URL: "http://" + address + wire.MCPPath})
}

func (r *cliRunner) AddSkill(_ context.Context, s Skill) error {
	err := r.cli.AddSkill(cli.Skill{Name: s.Name, Files: s.Files})
	if errors.Is(err, cli.ErrTaken) {
		return fmt.Errorf("the agent has a skill %s already", diag.Repr(s.Name))
	}
	return err
}

// anyhow is how all turns of a command are configured, as far as turns have to know: each is told of its own settings.
const anyhow = "any"

// Prompt makes a turn. Those of one conversation are made in order.
func (r *cliRunner) Prompt(ctx context.Context, p Prompt) (Reply, error) {
	_, leave, err := r.turns.enter(ctx, p.Context, anyhow, p.Queued)
	if err != nil {
		return Reply{}, err
	}
	defer leave()
	x := &exchanges{ctx: ctx, log: r.log, spent: p.Spent}
	out, err := r.ask(ctx, p, x)
	x.give(&out)
	return out, err
}

// ask makes a turn.
func (r *cliRunner) ask(ctx context.Context, p Prompt, x *exchanges) (Reply, error) {
	r.mu.Lock()
	s := p.Settings.or(r.settings)
	r.mu.Unlock()
	text, files, err := promptParts(p.Parts)
	if err != nil {
		return Reply{ErrorType: wire.AgentError, ErrorCode: "parts", ErrorMessage: err.Error()}, nil
	}
	w, err := r.slot(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer r.leave(w)
	asked := &peerTurns{turn: ctx, spent: x.take}
	stop, err := r.open(ctx, w, s, x, asked)
	if err != nil {
		return Reply{}, err
	}
	defer stop()
	set := cli.Settings{
		Model: s.Model, SystemPrompt: s.SystemPrompt, Effort: s.Effort, MaxTurns: s.MaxTurns, MaxThinking: s.MaxThinking, OutputFormat: s.OutputFormat,
		AllowedTools: s.Tools, Timeout: s.Timeout,
	}
	heard := func(e trajectory.Event) error {
		if p.Record == nil {
			return nil
		}
		if e.Kind == trajectory.Answered && s.Model != "" {
			e.Model = s.Model // the command may know it by a name that stands for it
		}
		return p.Record.Record(e)
	}
	got, err := r.cli.Prompt(ctx, cli.Prompt{
		Conversation: p.Context, Text: text, Files: files, Settings: set, Heard: heard, Model: w.model, Servers: w.servers(),
	})
	out := Reply{
		Text: got.Text, Structured: got.Structured, ToolCalls: got.ToolCalls, Model: s.Model, Native: got.Native, NativeFormat: got.Format,
		LeftOut: r.cli.Left(set), Usage: used(x, got.Usage), Peers: asked.turns(),
	}
	if s.ModelParams != nil {
		out.LeftOut = append(out.LeftOut, "model_params")
	}
	if f := got.Fault; f != nil {
		out.ErrorType, out.ErrorCode, out.ErrorMessage = f.Type, f.Code, f.Message
		if r.note != "" {
			out.ErrorMessage += "; " + r.note
		}
	}
	if err == nil && ctx.Err() == nil {
		err = x.unanswered(&out)
	}
	if errors.Is(err, guest.ErrGone) {
		err = step.Infra(err)
	}
	return out, err
}

// promptParts are the parts of a message as a command is told them: texts, and files that it is shown in its sandbox.
func promptParts(in []wire.Part) (string, []cli.Attachment, error) {
	var texts []string
	var files []cli.Attachment
	for _, p := range in {
		switch {
		case p.Kind == wire.KindText:
			texts = append(texts, p.Text)
		case p.Kind == wire.KindData:
			texts = append(texts, string(p.Data))
		case p.File != nil && p.File.Bytes != "":
			b, err := base64.StdEncoding.DecodeString(p.File.Bytes)
			if err != nil {
				return "", nil, fmt.Errorf("the file %s is not in base64", diag.Repr(p.File.Name))
			}
			files = append(files, cli.Attachment{Name: fileName(p.File.Name), Data: b})
		default:
			return "", nil, errors.New("the agent takes texts, data, and files by their content")
		}
	}
	return strings.Join(texts, "\n\n"), files, nil
}
