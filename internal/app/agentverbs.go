package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/agentowner"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// AgentInfo is an agent as lists show it.
type AgentInfo struct {
	ID      string   `json:"a2a_agent_id"`
	Version int      `json:"version,omitempty"` // of a stored one
	Kind    string   `json:"started_as"`
	Default bool     `json:"default,omitempty"`
	Command []string `json:"command,omitempty"`
	Model   string   `json:"default_model,omitempty"`
	Problem string   `json:"problem,omitempty"` // why it can't be deployed here; of AgentInfo alone
}

// Kinds of AgentInfo.
const (
	asProgram = "a part of this program"
	asCommand = "an installed command"
	asServer  = "a server in a sandbox"
)

// Agents are those that tasks can deploy: those of the program, and stored ones, newest first.
func (a *App) Agents(ctx context.Context) ([]AgentInfo, error) {
	agents, err := a.getAgents(ctx)
	if err != nil {
		return nil, err
	}
	def, err := agents.Resolve(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []AgentInfo
	for _, name := range agent.Builtins() {
		i := AgentInfo{ID: agent.BuiltinRoot + name, Kind: asCommand, Default: agent.BuiltinRoot+name == def}
		if i.ID == agent.Loop {
			i.Kind = asProgram
		} else if agents.Check(ctx, nil, "", deploy.AgentRequest{ID: i.ID}) != nil {
			continue
		}
		out = append(out, i)
	}
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	for q := (store.Query{Kind: store.Agent, Limit: 500}); ; {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Docs {
			out = append(out, AgentInfo{ID: d.ID, Version: d.Version, Kind: asServer, Default: d.ID == def})
		}
		if q.After = page.Next; q.After == "" {
			return out, nil
		}
	}
}

// findAgent is the id that text means: of a built-in agent, a stored one, or the last part of one's id where one alone has it.
func (a *App) findAgent(ctx context.Context, text string) (string, error) {
	if id, ok := agent.BuiltinID(text); ok {
		return id, nil
	}
	all, err := a.Agents(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, x := range all {
		if x.ID == text {
			return text, nil
		}
		if ref.Last(x.ID) == text {
			found = append(found, x.ID)
		}
	}
	switch len(found) {
	case 0:
		return text, nil // who deploys it tells
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("%s is several agents: %s", diag.Repr(text), found)
	}
}

// AgentInfo is an agent by its id or name, and whether it can be deployed here.
func (a *App) AgentInfo(ctx context.Context, text string) (AgentInfo, error) {
	agents, err := a.getAgents(ctx)
	if err != nil {
		return AgentInfo{}, err
	}
	id, err := a.findAgent(ctx, text)
	if err != nil {
		return AgentInfo{}, err
	}
	i := AgentInfo{ID: id, Kind: asCommand}
	if _, builtin := agent.BuiltinID(id); !builtin {
		s, err := a.Store(ctx)
		if err != nil {
			return i, err
		}
		stored, err := envstore.ReadAgent(ctx, s, id, 0)
		if err != nil {
			return i, err
		}
		i.Version, i.Kind, i.Model = stored.Version, asServer, stored.Model
		if stored.Part.Source.Process != nil {
			i.Command = stored.Part.Source.Process.Command
		}
	} else if id == agent.Loop {
		i.Kind = asProgram
	}
	def, err := agents.Resolve(ctx, "")
	i.Default = def == id
	if cerr := agents.Check(ctx, nil, "", deploy.AgentRequest{ID: id}); cerr != nil {
		i.Problem = cerr.Error()
	}
	return i, err
}

// AgentDeployments is the folder of agents that stand without a command.
func (a *App) AgentDeployments() (*agentowner.Folder, error) {
	root := a.Config().StateRoot()
	if root == "" {
		return nil, a.ConfigProblems().Err()
	}
	return agentowner.Open(filepath.Join(root, "agents")), nil
}

// AgentOrder completes the order of a deployment: its agent's id, what that is, and the model where the configuration names one. The error tells why the
// agent can't be deployed here.
func (a *App) AgentOrder(ctx context.Context, text string, o agentowner.Order) (agentowner.Order, error) {
	agents, err := a.getAgents(ctx)
	if err != nil {
		return o, err
	}
	info, err := a.AgentInfo(ctx, text)
	if err != nil {
		return o, err
	}
	chain, err := a.Chain(ctx, o.Type)
	if err != nil {
		return o, err
	}
	o.Agent, o.Kind = info.ID, info.Kind
	if err := agents.Check(ctx, chain, "", deploy.AgentRequest{ID: info.ID, Version: o.Version, Type: o.Type}); err != nil {
		return o, err
	}
	o.Model, err = a.agentModel(ctx, agents, o.Model)
	if err == nil && o.Model != "" {
		err = agents.Models().Check(ctx, o.Model, "")
	}
	return o, err
}

// agentModel is the model of an agent that people name, or that the configuration does; "" where neither does.
func (a *App) agentModel(ctx context.Context, agents *deploy.Agents, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	name, err := agents.Models().Name(ctx, source.Agent, nil, "")
	if errors.Is(err, source.ErrNone) {
		return "", nil
	}
	return name, err
}

// OwnAgent is the life of a process that holds one deployment: order is an agentowner.Order of the caller's.
func (a *App) OwnAgent(ctx context.Context, order io.Reader, c *owner.Caller) error {
	defer c.Life.Close()
	var o agentowner.Order
	if err := json.NewDecoder(order).Decode(&o); err != nil {
		return fmt.Errorf("read what to deploy: %w", err)
	}
	f, err := a.AgentDeployments()
	if err != nil {
		return err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return err
	}
	agents, err := a.getAgents(ctx)
	if err != nil {
		return err
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return err
	}
	return (&agentowner.Owner{Folder: f, Store: s, Boxes: w.deploy, Agents: agents, Log: a.opt.Log}).Own(ctx, o, c)
}

// AgentPrompt is one thing to ask an agent.
type AgentPrompt struct {
	Agent, Text   string
	Model, System string
	Sandbox       string // providers to try; "" is the configured chain
	Timeout       time.Duration
	Tell          func(deploy.Work) // of work that the deployment waits for; may be nil
}

// PromptAgent deploys an agent, asks it one thing and takes it down again.
func (a *App) PromptAgent(ctx context.Context, q AgentPrompt) (id string, _ deploy.Reply, err error) {
	w, err := a.getWorld(ctx)
	if err != nil {
		return "", deploy.Reply{}, err
	}
	agents, err := a.getAgents(ctx)
	if err != nil {
		return "", deploy.Reply{}, err
	}
	if id, err = a.findAgent(ctx, q.Agent); err != nil {
		return "", deploy.Reply{}, err
	}
	chain, err := a.Chain(ctx, q.Sandbox)
	if err != nil {
		return "", deploy.Reply{}, err
	}
	name, err := a.agentModel(ctx, agents, q.Model)
	if err != nil {
		return "", deploy.Reply{}, err
	}
	run := "agent/" + rand.Text()
	w.deploy.Open(run, deploy.Policy{Chain: chain, Tell: q.Tell})
	defer func() {
		_, derr := w.deploy.Down(ctx, run)
		err = errors.Join(err, derr)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, q.Timeout, fmt.Errorf("it had not answered after %s", q.Timeout))
	defer cancel()
	d, err := agents.Deploy(ctx, deploy.AgentRequest{
		Run: run, Step: "prompt", Attempt: 1, Trial: 1, Name: "agent", ID: id, Settings: deploy.Settings{SystemPrompt: q.System},
	})
	if err != nil {
		return id, deploy.Reply{}, err
	}
	r, err := d.Ask(ctx, deploy.Prompt{Settings: deploy.Settings{Model: name, Timeout: q.Timeout}, Parts: []wire.Part{wire.TextPart(q.Text)}})
	return id, r, err
}
