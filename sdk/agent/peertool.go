package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/wire"
)

// peerTool is one tool of the server of peers.
type peerTool struct {
	name, description, schema string
	call                      func(ctx context.Context, args []byte) (any, error)
}

func (a *Agent) peerToolList() []peerTool {
	const (
		name    = `"name":{"type":"string","description":"The peer's name, as peer_list tells it."}`
		message = name + `,"prompt":{"type":"string","description":"The text to send; give this or parts."},` +
			`"parts":{"type":"array","items":{"type":"object"},"description":"The parts of an A2A message to send in place of prompt."},` +
			`"context_id":{"type":"string","description":"The context_id of an earlier answer, to go on with that conversation."}`
		task = `"task_id":{"type":"string","description":"The task_id of an earlier answer."}`
	)
	object := func(properties, required string) string {
		return `{"type":"object","properties":{` + properties + `},"required":[` + required + `],"additionalProperties":false}`
	}
	return []peerTool{
		{"peer_list", "Lists the agents that can be asked: names, what they do, their skills.", object("", ""), a.peerList},
		{"peer_get_card", "Shows the whole card of one peer.", object(name, `"name"`), a.peerCard},
		{
			"peer_send_message", "Sends a peer a message and waits for its result. When state is working, look again with peer_get_task; when it is input-required, answer with another message in the same context_id.",
			object(message+`,"timeout_seconds":{"type":"integer","minimum":1,"description":"How long to wait, 45 unless given, 50 at most."}`, `"name"`), a.peerSend,
		},
		{"peer_start_task", "Sends a peer a message and answers at once; look for the result with peer_get_task.", object(message, `"name"`), a.peerStart},
		{
			"peer_get_task", "Shows how a peer's task stands, and its result once there is one.",
			object(task+`,"history_length":{"type":"integer","minimum":0,"description":"How many of the task's messages to show."}`, `"task_id"`), a.peerGet,
		},
		{"peer_cancel_task", "Cancels a peer's task.", object(task, `"task_id"`), a.peerCancel},
	}
}

// peerTools serves the tools to this machine alone. Its sessions last one request each.
func (a *Agent) peerTools() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: PeerServer, Version: a.version}, nil)
	for _, t := range a.peerToolList() {
		server.AddTool(&mcp.Tool{Name: t.name, Description: t.description, InputSchema: json.RawMessage(t.schema)}, a.peerHandler(t))
	}
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopback(r.RemoteAddr):
			http.Error(w, "the tools of peers are for the agent's own model, on the loopback", http.StatusForbidden)
		case !loopback(r.Host):
			http.Error(w, "the host is none of the loopback", http.StatusMisdirectedRequest)
		case !loopbackOrigin(r.Header.Get("Origin")):
			http.Error(w, "the origin is none of the loopback", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// loopback tells whether an address, with or without port, is this machine's own.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func loopbackOrigin(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Host)
}

func (a *Agent) peerHandler(t peerTool) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, peerBudget, fmt.Errorf("the peer gave no answer within %v", peerBudget))
		defer cancel()
		args := r.Params.Arguments
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		out, err := guarded(func() (any, error) { return t.call(ctx, args) })
		if p, ok := errors.AsType[*panicked](err); ok {
			err = errors.New(a.crash(ctx, t.name, p))
		}
		var text json.RawMessage
		if err == nil {
			text, err = encode(out)
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil
	}
}

func (a *Agent) peerList(_ context.Context, args []byte) (any, error) {
	f, err := readFields(args)
	if err == nil {
		err = f.err()
	}
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, p := range a.peers.all() {
		var c wire.AgentCard
		if p.Card != nil {
			c, _ = wire.ParseAgentCard(p.Card) // what can't be read is not told
		}
		about := p.Description
		if about == "" {
			about = c.Description
		}
		if about == "" {
			about = "An agent at " + p.URL
		}
		skills := []map[string]string{}
		for _, s := range c.Skills {
			skills = append(skills, map[string]string{"id": s.ID, "name": s.Name, "description": s.Description})
		}
		modes := func(m []string) []string {
			if len(m) == 0 {
				return []string{"text"}
			}
			return m
		}
		out = append(out, map[string]any{
			"name": p.Name, "url": p.URL, "description": about, "skills": skills, "capabilities": map[string]bool{"streaming": c.Capabilities.Streaming},
			"default_input_modes": modes(c.DefaultInputModes), "default_output_modes": modes(c.DefaultOutputModes),
		})
	}
	return out, nil
}

func (a *Agent) peerCard(ctx context.Context, args []byte) (any, error) {
	f, err := readFields(args, "name")
	if err != nil {
		return nil, err
	}
	name := f.text("name", true)
	if err := f.err(); err != nil {
		return nil, err
	}
	p, err := a.peers.find(name)
	if err != nil || p.Card != nil {
		return p.Card, err
	}
	b, err := a.fetch(ctx, http.MethodGet, p.URL+wire.AgentCardPath, nil)
	if err != nil {
		return nil, err
	}
	if _, err := wire.ParseObject(b); err != nil {
		return nil, fmt.Errorf("the peer's card: %w", err)
	}
	return json.RawMessage(b), nil
}

// peerMessage is what is sent to whom.
type peerMessage struct {
	peer    Peer
	parts   []wire.Part
	context string
	wait    time.Duration
}

func (a *Agent) decodePeerMessage(args []byte, more ...string) (peerMessage, error) {
	f, err := readFields(args, append(more, "name", "prompt", "parts", "context_id")...)
	if err != nil {
		return peerMessage{}, err
	}
	name := f.text("name", true)
	m := peerMessage{context: f.text("context_id", false)}
	m.wait = min(time.Duration(f.integer("timeout_seconds", 1, 1<<30, int64(peerWait/time.Second)))*time.Second, peerMaxWait)
	for i, raw := range f.list("parts", false) {
		var p wire.Part
		if err := json.Unmarshal(raw, &p); err != nil {
			f.fail(fmt.Sprintf("parts[%d]", i), "%v", err)
		}
		m.parts = append(m.parts, p)
	}
	if prompt := f.text("prompt", false); len(m.parts) == 0 {
		if prompt == "" {
			f.fail("prompt", "want it or parts")
		}
		m.parts = []wire.Part{wire.TextPart(prompt)}
	}
	if err := f.err(); err != nil {
		return m, err
	}
	m.peer, err = a.peers.find(name)
	return m, err
}

func (a *Agent) peerSend(ctx context.Context, args []byte) (any, error) {
	m, err := a.decodePeerMessage(args, "timeout_seconds")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	pt, t, err := a.start(ctx, m.peer, m.parts, m.context)
	if err != nil {
		return nil, err
	}
	if t, err = a.settle(ctx, pt, t, m.wait-time.Since(began)); err != nil {
		return nil, err
	}
	if !settled(t.Status.State) {
		return map[string]any{"task_id": pt.id, "context_id": pt.context, "state": wire.TaskWorking}, nil
	}
	return peerOutcome(pt, t, false), nil
}

func (a *Agent) peerStart(ctx context.Context, args []byte) (any, error) {
	m, err := a.decodePeerMessage(args)
	if err != nil {
		return nil, err
	}
	pt, t, err := a.start(ctx, m.peer, m.parts, m.context)
	if err != nil {
		return nil, err
	}
	return map[string]any{"task_id": pt.id, "context_id": pt.context, "state": t.Status.State}, nil
}

func (a *Agent) peerGet(ctx context.Context, args []byte) (any, error) {
	f, err := readFields(args, "task_id", "history_length")
	if err != nil {
		return nil, err
	}
	id, history := f.text("task_id", true), f.integer("history_length", 0, 1<<30, -1)
	if err := f.err(); err != nil {
		return nil, err
	}
	pt, err := a.peers.task(id)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"id": id}
	if history >= 0 {
		params["historyLength"] = history
	}
	t, err := a.ask(ctx, pt.address, wire.A2AGet, params)
	if err != nil {
		return nil, err
	}
	a.peers.seen(pt, t.Status.State)
	return peerOutcome(pt, t, history >= 0), nil
}

func (a *Agent) peerCancel(ctx context.Context, args []byte) (any, error) {
	f, err := readFields(args, "task_id")
	if err != nil {
		return nil, err
	}
	id := f.text("task_id", true)
	if err := f.err(); err != nil {
		return nil, err
	}
	pt, err := a.peers.task(id)
	if err != nil {
		return nil, err
	}
	t, err := a.ask(ctx, pt.address, wire.A2ACancel, map[string]string{"id": id})
	if err != nil {
		return nil, err
	}
	a.peers.seen(pt, t.Status.State)
	return map[string]any{"task_id": id, "state": t.Status.State}, nil
}

// peerOutcome is a task as the tools tell of it.
func peerOutcome(pt *peerTask, t wire.Task, history bool) map[string]any {
	out := map[string]any{"task_id": pt.id, "context_id": pt.context, "state": t.Status.State}
	var texts []string
	var others []wire.Part
	if m := t.Status.Message; m != nil {
		for _, p := range m.Parts {
			if p.Kind == wire.KindText {
				texts = append(texts, p.Text)
			} else {
				others = append(others, p)
			}
		}
	}
	if texts != nil {
		out["response"] = strings.Join(texts, "\n")
	}
	if others != nil {
		out["parts"] = others
	}
	if len(t.Artifacts) > 0 {
		out["artifacts"] = t.Artifacts
	}
	if history && len(t.History) > 0 {
		out["history"] = t.History
	}
	if t.Status.State == wire.TaskFailed {
		out["error"] = map[string]any{"raw_message": t.Status.Message}
	}
	return out
}
