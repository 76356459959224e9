package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/wire"
)

// Names of the verifications that validators of agents leave.
const (
	AgentCard         = "a2a_agent_card"
	AgentIdentity     = "a2a_agent_config_identity"
	AgentRole         = "a2a_role"
	AgentTrajectory   = "a2a_trajectory"
	AgentProtocol     = "a2a_core_protocol"
	AgentMCP          = "a2a_agent_mcp"
	AgentSystemPrompt = "a2a_system_prompt"
	AgentSkills       = "a2a_skill_config"
	AgentSnapshot     = "a2a_snapshot"
	AgentPeers        = "a2a_peer_agents"
	AgentModalities   = "a2a_modalities"
	AgentInstall      = "a2a_install"
)

// Agents is what the executors need of deployed agents.
type Agents interface {
	Agent(run, name string) (*deploy.Agent, error)
	Resolve(ctx context.Context, text string) (string, error)
	RecordPath(run, stepID string, attempt int, agent string) string
	Redactor() *redact.Redactor
	Models() *source.Models
}

var _ Agents = (*deploy.Agents)(nil)

// AgentValidator is the executor of a step that checks one capability of a deployed agent and records what it found.
type AgentValidator struct {
	agents Agents
	name   string
	check  func(ctx context.Context, s *subject) ([]step.Row, error)
}

// NewAgentValidators makes the executors of the verify_a2a_ steps, by type. What they find is a verification; they fail only when there is nothing to
// look at. Those that configure the agent set it back to what it was.
func NewAgentValidators(a Agents) map[string]step.Executor {
	return map[string]step.Executor{
		"verify_a2a_agent_card":            &AgentValidator{a, AgentCard, checkAgentCard},
		"verify_a2a_agent_config_identity": &AgentValidator{a, AgentIdentity, checkIdentity},
		"verify_a2a_agent_mcp":             &AgentValidator{a, AgentMCP, checkMCP},
		"verify_a2a_core_protocol":         &AgentValidator{a, AgentProtocol, checkAgentProtocol},
		"verify_a2a_install":               &AgentValidator{a, AgentInstall, checkInstall},
		"verify_a2a_modalities":            &AgentValidator{a, AgentModalities, checkModalities},
		"verify_a2a_peer_agents":           &AgentValidator{a, AgentPeers, checkPeers},
		"verify_a2a_role":                  &AgentValidator{a, AgentRole, checkRole},
		"verify_a2a_skill_config":          &AgentValidator{a, AgentSkills, checkSkills},
		"verify_a2a_snapshot":              &AgentValidator{a, AgentSnapshot, checkSnapshot},
		"verify_a2a_system_prompt":         &AgentValidator{a, AgentSystemPrompt, checkSystemPrompt},
		"verify_a2a_trajectory":            &AgentValidator{a, AgentTrajectory, checkTrajectory},
	}
}

// Run makes the check and records its verification.
func (e *AgentValidator) Run(ctx context.Context, c *step.Call) error {
	s := &subject{c: c, agents: e.agents}
	name, err := e.find(ctx, c)
	if err == nil && name != "" {
		s.agent, err = e.agents.Agent(c.Run, name)
	}
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	if s.agent != nil {
		s.client, s.card, _ = s.agent.A2A()
	}
	rows, err := e.check(ctx, s)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	for _, r := range rows {
		if r["skipped"] != true && r["result"] != true {
			c.Log.Warn("check failed", "check", e.name, "agent", name, "criterion", r["criterion"], "why", r["justification"])
		}
	}
	return c.Out.Set(step.Child(step.VerificationsPath, e.name), Verification(c.Step, rows))
}

// find is the name of the deployed agent that a step means: the one of the default name where several were deployed of one id, else the first. What
// install_agent left is found by its name; "" when it left nothing, which is a finding.
func (e *AgentValidator) find(ctx context.Context, c *step.Call) (string, error) {
	want := c.Doc.Get("a2a_agent_id").Text()
	if c.Agent != "" {
		want = c.Agent
	}
	id, err := e.agents.Resolve(ctx, want)
	if err != nil {
		return "", err
	}
	byName := c.Doc.Get("agent_name").Text()
	name := ""
	for _, raw := range c.State.List(step.AgentsPath) {
		var a step.Agent
		switch {
		case json.Unmarshal(raw, &a) != nil:
		case byName != "" && a.Name == byName, byName == "" && a.ID == id && a.Name == step.DefaultAgent:
			return a.Name, nil
		case byName == "" && a.ID == id && name == "":
			name = a.Name
		}
	}
	if name == "" && byName == "" {
		return "", fmt.Errorf("no step before deployed the agent %s; a deploy_agent step has to come first", diag.Repr(id))
	}
	return name, nil
}

// subject is what a check looks at: the agent, and what its step says and sees. client and card are nil for an agent that doesn't speak A2A.
type subject struct {
	c      *step.Call
	agents Agents
	agent  *deploy.Agent
	client *a2a.Client
	card   *wire.AgentCard
}

// unchecked is a row about something that could not be looked at.
func unchecked(criterion, why string) step.Row {
	return step.Row{"criterion": criterion, "result": false, "score": 0.0, "skipped": true, "justification": why}
}

// inProcess is why nothing of the protocol is checked of an agent that doesn't speak it.
const inProcess = "agent-env runs this agent itself and speaks no A2A with it"

// said is a row about something that the agent was asked: err "" is that it is well. The error is the machinery's.
func said(criterion string, err error) (step.Row, error) {
	if errors.Is(err, guest.ErrGone) {
		return nil, err
	}
	if err != nil {
		return outcome("", criterion, err.Error()), nil
	}
	return outcome("", criterion, ""), nil
}

// operation calls an operation of the agent's, within callLimit.
func (s *subject) operation(ctx context.Context, uri, name string, in map[string]any, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("the agent did not answer within %s", callLimit))
	defer cancel()
	return s.client.Operation(ctx, s.card, uri, name, in, out, false)
}

// takes tells whether the card lists an operation that takes these members.
func (s *subject) takes(uri, name string, members ...string) bool {
	op, ok := s.card.AgentOperation(uri, name)
	return ok && (op.Request == nil || op.Request.Takes(members...))
}

// conform are the results of rows of the protocol's table.
func (s *subject) conform(ctx context.Context, rows ...string) ([]step.Row, error) {
	r, err := conformance.Run(ctx, conformance.Target{URL: s.client.Base(), Rows: rows, Agent: true, Client: &http.Client{
		Timeout: callLimit, Transport: s.client.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []step.Row
	for _, x := range r.Results {
		row := outcome("", x.Name, x.Reason)
		if x.Status == conformance.Skipped {
			row = unchecked(x.Name, x.Reason)
		}
		row["row"] = x.Row
		out = append(out, row)
	}
	if err != nil {
		out = append(out, outcome("", "the agent answers", err.Error()))
	}
	return out, nil
}

// errSlow is the cause of a conversation that takes longer than its step allows.
var errSlow = errors.New("the time of the conversation is up")

// ask gives the agent a message in a conversation of its own. problem is why there is no reply that says anything of the agent; the error is the machinery's.
func (s *subject) ask(ctx context.Context, settings deploy.Settings, text string) (reply deploy.Reply, problem string, err error) {
	limit := time.Duration(0)
	if n, ok := s.c.Doc.Get("timeout_seconds").Float(); ok {
		limit = time.Duration(n * float64(time.Second))
	}
	poll, _ := s.c.Doc.Get("poll_interval_seconds").Float()
	settings.Model, err = s.agents.Models().Name(ctx, source.Agent, s.c.Models, "")
	if err != nil && !errors.Is(err, source.ErrNone) {
		return reply, "", &step.Error{Type: "ModelError", Err: err}
	}
	settings.Timeout = limit
	record := s.agents.RecordPath(s.c.Run, s.c.Step, s.c.Attempt, s.agent.Name)
	f, err := live.Open(live.Options{Path: record, Redact: s.agents.Redactor()})
	if err != nil {
		return reply, "", step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	defer f.Close()
	limited, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	reply, err = s.agent.Runner.Prompt(limited, deploy.Prompt{
		Settings: settings, Parts: []wire.Part{wire.TextPart(text)}, Context: newID(), Task: newID(), Poll: time.Duration(poll * float64(time.Second)), Record: f,
		Spent: func(u model.Usage) { s.c.Spent(step.Cost{USD: u.USD, InputTokens: u.Input, OutputTokens: u.Output}) },
	})
	s.agent.Recorded(record)
	switch {
	case ctx.Err() != nil:
		return reply, "", context.Cause(ctx)
	case err != nil && errors.Is(context.Cause(limited), errSlow):
		return reply, fmt.Sprintf("it had not answered after %s", limit), nil
	case err != nil:
		return reply, "", err
	case reply.ErrorType != "":
		return reply, strings.Join([]string{reply.ErrorType, reply.ErrorCode, reply.ErrorMessage}, ": "), nil
	}
	return reply, "", nil
}

// prompted is the reply to a prompt of a step before; nil for none.
func (s *subject) prompted(id string) *step.PromptResponse {
	var found *step.PromptResponse
	for _, raw := range s.c.State.List(step.PromptsPath) {
		var p step.PromptResponse
		if json.Unmarshal(raw, &p) == nil && p.ID == id {
			found = &p
		}
	}
	return found
}

// criterion is whether a criterion of a verification of a step before was met, as a row.
func (s *subject) criterion(criterion, verifier, id string) (step.Row, error) {
	v, found, err := verification(s.c, verifier)
	if err != nil {
		return nil, err
	}
	if !found {
		return outcome("", criterion, "no step before left the verification "+diag.Repr(verifier)), nil
	}
	for _, r := range v.Results {
		if r["id"] != id {
			continue
		}
		if score, _ := r["score"].(float64); score != 1 {
			return outcome("", criterion, fmt.Sprintf("the judge scored %s %g", diag.Repr(id), score)), nil
		}
		return outcome("", criterion, ""), nil
	}
	why := fmt.Sprintf("the verification %s says nothing of %s", diag.Repr(verifier), diag.Repr(id))
	if v.Unscored != "" {
		why += ": " + v.Unscored
	}
	return outcome("", criterion, why), nil
}

// excerpt is the beginning of a text, for a row.
func excerpt(s string) string {
	const most = 500
	at := 0
	for i := range s {
		if at == most {
			return s[:i] + "…"
		}
		at++
	}
	return s
}
