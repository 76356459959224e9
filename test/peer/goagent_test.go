//go:build integration

package peer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/agent/loop"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// modelled is an agent in Go whose turns are a tool loop on a model's endpoint: with skills, MCP servers, peers, and conversations that can be saved.
type modelled struct {
	model model.Model

	mu    sync.Mutex
	talks map[string][]model.Message // by context
}

type modelledConfig struct {
	SystemPrompt string `json:"system_prompt"`
	Model        string `json:"model"`
	MaxTurns     int    `json:"max_turns"`
}

func (m *modelled) agent(name string) *agent.Agent {
	return agent.New(name, m.run, agent.WithLookup(nothing), agent.WithDescription("Asks a model."), agent.WithModes([]string{"text", "image/png"}, []string{"text"}),
		agent.WithConfig(modelledConfig{Model: "fake"}), agent.WithMCP(), agent.WithSkills("", nil), agent.WithTrajectory(), agent.WithPeers(), agent.WithTriggers(),
		agent.WithInstall(map[string]any{"commands": []string{"true"}}), agent.WithSnapshots(m.save, m.load))
}

func (m *modelled) run(ctx context.Context, t *agent.Turn) (agent.Result, error) {
	c := agent.Config[modelledConfig](t)
	tools := &mcpTools{}
	defer tools.close()
	if err := tools.connect(ctx, t.Servers); err != nil {
		return agent.Result{}, agent.Unable("mcp.unreachable", "%v", err)
	}
	prompt := c.SystemPrompt
	for _, s := range t.Skills {
		md, err := os.ReadFile(filepath.Join(s.Dir, "SKILL.md"))
		if err != nil {
			return agent.Result{}, err
		}
		prompt += "\n" + string(md)
	}
	if err := t.TrajectoryFormat("loop"); err != nil {
		return agent.Result{}, err
	}
	m.mu.Lock()
	history := m.talks[t.ContextID]
	m.mu.Unlock()
	l := loop.New(loop.Config{Model: m.model, Request: model.Request{Model: c.Model, System: prompt}, Tools: tools, Record: recorder{t}, Now: time.Now, MaxTurns: c.MaxTurns}, history)
	r, err := l.Turn(ctx, []model.Part{{Text: t.Text()}})
	m.mu.Lock()
	m.talks[t.ContextID] = slices.Clone(l.Messages())
	m.mu.Unlock()
	if f, ok := errors.AsType[*loop.Failure](err); ok {
		return agent.Result{}, agent.Fail("loop."+f.Code, "%v", f.Err)
	}
	if err != nil {
		return agent.Result{}, err
	}
	n := int64(r.ToolCalls)
	res := agent.Text(r.Text)
	res.Usage = &wire.AgentUsage{ToolCallCount: &n, InputTokens: &r.Usage.Input, OutputTokens: &r.Usage.Output}
	return res, nil
}

func (m *modelled) save(ctx context.Context, s *agent.Snapshot) error {
	m.mu.Lock()
	talk, ok := m.talks[s.ContextID]
	m.mu.Unlock()
	if !ok {
		return agent.Refuse(404, "there is no such context")
	}
	b, err := json.Marshal(talk)
	if err != nil {
		return err
	}
	if s.Workspace != nil { // it has none, and its caller wants what it asked for
		if err := s.Workspace.Write(ctx, strings.NewReader("")); err != nil {
			return err
		}
	}
	return s.Trajectory.Write(ctx, bytes.NewReader(b))
}

func (m *modelled) load(ctx context.Context, s *agent.Saved) (string, error) {
	b, err := s.Trajectory.Bytes(ctx, 1<<20)
	if err != nil {
		return "", err
	}
	var talk []model.Message
	if err := json.Unmarshal(b, &talk); err != nil {
		return "", agent.Refuse(400, "the trajectory is none of this agent's")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.talks[s.TargetContextID] = talk
	return s.TargetContextID, nil
}

type recorder struct{ t *agent.Turn }

func (r recorder) Record(e trajectory.Event) error    { return r.t.Record(e) }
func (recorder) Image(string, []byte) (string, error) { return "", errors.New("no pictures") }

// mcpTools are the tools of MCP servers, as mcp__server__tool.
type mcpTools struct {
	sessions map[string]*mcp.ClientSession
}

func (m *mcpTools) connect(ctx context.Context, servers []agent.Server) error {
	m.sessions = map[string]*mcp.ClientSession{}
	for _, s := range servers {
		c, err := mcp.NewClient(&mcp.Implementation{Name: "modelled", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.URL, DisableStandaloneSSE: true}, nil)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", s.Name, err)
		}
		m.sessions[s.Name] = c
	}
	return nil
}

func (m *mcpTools) close() {
	for _, s := range m.sessions {
		_ = s.Close() // the turn is over
	}
}

func (m *mcpTools) List(ctx context.Context) ([]model.Tool, error) {
	var out []model.Tool
	for name, s := range m.sessions {
		l, err := s.ListTools(ctx, nil)
		if err != nil {
			return nil, err
		}
		for _, t := range l.Tools {
			schema, err := json.Marshal(t.InputSchema)
			if err != nil {
				return nil, err
			}
			out = append(out, model.Tool{Name: "mcp__" + name + "__" + t.Name, Description: t.Description, Schema: schema})
		}
	}
	return out, nil
}

func (m *mcpTools) Call(ctx context.Context, name string, args json.RawMessage) (loop.Result, error) {
	server, tool, _ := strings.Cut(strings.TrimPrefix(name, "mcp__"), "__")
	s := m.sessions[server]
	if s == nil {
		return loop.Result{Error: true, Parts: []model.Part{{Text: "there is no such tool"}}}, nil
	}
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return loop.Result{}, err
	}
	out := loop.Result{Error: r.IsError}
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			out.Parts = append(out.Parts, model.Part{Text: t.Text})
		}
	}
	return out, nil
}
