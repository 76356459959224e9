package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Where agents are found.
const (
	agentCardPath    = "/.well-known/agent-card.json"
	agentOldCardPath = "/.well-known/agent.json"
	agentPath        = "/a2a"
)

// Codes of an agent's JSON-RPC errors beside those of environments.
const (
	codeNoTask    = -32001
	codeNotCancel = -32002
)

func agentRows() []row {
	agent := []string{KindAgent}
	return []row{
		{"A1", "agent card: both paths, the same", agent, checkAgentCard},
		{"A2", "message/send: a task at once", agent, checkSend},
		{"A3", "message/send: a context is minted or kept", agent, checkContext},
		{"A4", "message/send: bad messages", agent, checkBadMessages},
		{"A5", "any: an unknown task", agent, checkUnknownTask},
		{"A6", "tasks/cancel: a running task, an ended one", agent, checkCancel},
		{"A7", "tasks/get: an ended task holds its reply", agent, checkReply},
		{"A8", "a task that fails, and one that crashes", agent, checkTaskFailures},
		{"A9", "tasks of one context run in order", agent, checkOrder},
		{"A10", "agent-config: bad and empty settings", agent, checkAgentConfig},
		{"A11", "agent-config: a secret isn't told", agent, checkAgentSecret},
		{"A12", "mcp-config: bad servers, and one twice", agent, checkAgentServers},
		{"A13", "skill-config: bad skills, and one twice", agent, checkAgentSkills},
		{"A14", "trajectory: of a running task", agent, checkRunningTrajectory},
		{"A15", "trajectory: bad cursors", agent, checkCursors},
		{"A16", "snapshot: an expired grant, a wrong media type", agent, checkAgentSnapshot},
		{"A17", "apply-changelog: nothing, and what doesn't increase", agent, checkChangelog},
		{"A18", "triggers: one fires once", agent, checkDecide},
		{"A19", "staging: what it refuses", agent, checkStaging},
		{"A20", "health", agent, func(ctx context.Context, p *probe) error {
			resp, err := p.do(ctx, http.MethodGet, "/health", "")
			if err == nil && (resp.status != http.StatusOK || !sameJSON(resp.body, `{"status":"ok"}`)) {
				err = fmt.Errorf("status %d and %s, want 200 and {\"status\":\"ok\"}", resp.status, short(resp.body))
			}
			return err
		}},
	}
}

func checkAgentCard(ctx context.Context, p *probe) error {
	var bodies []string
	for _, path := range []string{agentCardPath, agentOldCardPath} {
		resp, err := p.do(ctx, http.MethodGet, path, "")
		if err != nil {
			return err
		}
		if resp.status != http.StatusOK {
			return fmt.Errorf("%s: status %d, want 200", path, resp.status)
		}
		bodies = append(bodies, resp.body)
	}
	if !sameJSON(bodies[0], bodies[1]) {
		return errors.New("the two paths serve different cards")
	}
	var card map[string]any
	if err := json.Unmarshal([]byte(bodies[0]), &card); err != nil {
		return fmt.Errorf("the card is no JSON object: %w", err)
	}
	if card["protocolVersion"] != "0.3.0" {
		return fmt.Errorf("protocolVersion %v, want 0.3.0", card["protocolVersion"])
	}
	for _, name := range []string{"name", "description", "url", "version", "capabilities", "defaultInputModes", "defaultOutputModes"} {
		if v := card[name]; v == nil || v == "" {
			return fmt.Errorf("%s is empty", name)
		}
	}
	if _, ok := card["skills"].([]any); !ok {
		return errors.New("skills is no list")
	}
	return nil
}

// agentTask is what rows look at of a task.
type agentTask struct {
	ID      string `json:"id"`
	Context string `json:"contextId"`
	Kind    string `json:"kind"`
	Status  struct {
		State     string          `json:"state"`
		Timestamp string          `json:"timestamp"`
		Message   json.RawMessage `json:"message"`
	} `json:"status"`
}

func (t agentTask) ended() bool {
	return slices.Contains([]string{"completed", "failed", "canceled", "rejected"}, t.Status.State)
}

// a2a calls a method of the agent.
func (p *probe) a2a(ctx context.Context, method string, params any) (wire.Response, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return wire.Response{}, err
	}
	b, err := json.Marshal(wire.Request{ID: json.RawMessage(`"c"`), Method: method, Params: raw})
	if err != nil {
		return wire.Response{}, err
	}
	resp, err := p.do(ctx, http.MethodPost, agentPath, string(b), "Content-Type", "application/json")
	if err != nil {
		return wire.Response{}, err
	}
	if resp.status != http.StatusOK {
		return wire.Response{}, fmt.Errorf("%s: status %d, want 200", method, resp.status)
	}
	return wire.DecodeResponse([]byte(resp.body))
}

// task calls a method that answers a task.
func (p *probe) task(ctx context.Context, method string, params any) (agentTask, error) {
	r, err := p.a2a(ctx, method, params)
	if err := fine(r, err); err != nil {
		return agentTask{}, fmt.Errorf("%s: %w", method, err)
	}
	var t agentTask
	if err := json.Unmarshal(r.Result, &t); err != nil {
		return t, fmt.Errorf("%s: the result is no task: %w", method, err)
	}
	if t.ID == "" || t.Context == "" || t.Status.State == "" {
		return t, fmt.Errorf("%s: a task without id, contextId or state", method)
	}
	return t, nil
}

// message is params of message/send; context "" leaves it out.
func (p *probe) message(text, contextID string) map[string]any {
	p.sent++
	m := map[string]any{"messageId": fmt.Sprintf("conform-%d-%d", time.Now().UnixNano(), p.sent), "role": "user", "parts": []any{map[string]any{"kind": "text", "text": text}}}
	if contextID != "" {
		m["contextId"] = contextID
	}
	return map[string]any{"message": m, "configuration": map[string]any{"blocking": false}}
}

func (p *probe) prompt() string {
	if s := p.target.Fixture.Prompt; s != "" {
		return s
	}
	return "hello"
}

func (p *probe) send(ctx context.Context, text, contextID string) (agentTask, error) {
	return p.task(ctx, "message/send", p.message(text, contextID))
}

// patience is how long a task of a fixture may take to end.
const patience = time.Minute

// finish waits until a task has ended.
func (p *probe) finish(ctx context.Context, id string) (agentTask, error) {
	for end := time.Now().Add(patience); ; {
		t, err := p.task(ctx, "tasks/get", map[string]any{"id": id})
		if err != nil || t.ended() {
			return t, err
		}
		if time.Now().After(end) {
			return t, fmt.Errorf("the task hasn't ended after %v", patience)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return t, err
		}
	}
}

func checkSend(ctx context.Context, p *probe) error {
	t, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if t.Kind != "task" {
		return fmt.Errorf("kind %q, want task", t.Kind)
	}
	if !slices.Contains([]string{"submitted", "working", "completed", "failed"}, t.Status.State) {
		return fmt.Errorf("state %q, want submitted or later", t.Status.State)
	}
	return nil
}

func checkContext(ctx context.Context, p *probe) error {
	a, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	b, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if a.Context == b.Context {
		return errors.New("two messages without context got the same one")
	}
	c, err := p.send(ctx, p.prompt(), a.Context)
	if err == nil && c.Context != a.Context {
		err = fmt.Errorf("contextId %q, want the one that was sent", c.Context)
	}
	return err
}

func checkBadMessages(ctx context.Context, p *probe) error {
	done, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if _, err := p.finish(ctx, done.ID); err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		change func(map[string]any)
	}{
		{"no parts", func(m map[string]any) { m["parts"] = []any{} }},
		{"a bad role", func(m map[string]any) { m["role"] = "boss" }},
		{"no messageId", func(m map[string]any) { delete(m, "messageId") }},
		{"an ended task", func(m map[string]any) { m["taskId"], m["contextId"] = done.ID, done.Context }},
	} {
		params := p.message(p.prompt(), "")
		message, _ := params["message"].(map[string]any)
		c.change(message)
		r, err := p.a2a(ctx, "message/send", params)
		if err := refusal(r, err, wire.CodeParams); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func checkUnknownTask(ctx context.Context, p *probe) error {
	const none = "00000000-0000-4000-8000-000000000000"
	params := p.message(p.prompt(), "")
	message, _ := params["message"].(map[string]any)
	message["taskId"] = none
	for _, c := range []struct {
		method string
		params any
	}{{"message/send", params}, {"tasks/get", map[string]any{"id": none}}, {"tasks/cancel", map[string]any{"id": none}}} {
		r, err := p.a2a(ctx, c.method, c.params)
		if err := refusal(r, err, codeNoTask); err != nil {
			return fmt.Errorf("%s: %w", c.method, err)
		}
	}
	return nil
}

func checkCancel(ctx context.Context, p *probe) error {
	slow := p.target.Fixture.SlowPrompt
	if slow == "" {
		return skip("the fixture has no slow_prompt")
	}
	t, err := p.send(ctx, slow, "")
	if err != nil {
		return err
	}
	c, err := p.task(ctx, "tasks/cancel", map[string]any{"id": t.ID})
	if err != nil {
		return err
	}
	if c.Status.State != "canceled" {
		return fmt.Errorf("state %q, want canceled", c.Status.State)
	}
	r, err := p.a2a(ctx, "tasks/cancel", map[string]any{"id": t.ID})
	return refusal(r, err, codeNotCancel)
}

func checkReply(ctx context.Context, p *probe) error {
	t, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if t, err = p.finish(ctx, t.ID); err != nil {
		return err
	}
	var m struct {
		Role  string           `json:"role"`
		Parts []map[string]any `json:"parts"`
	}
	if json.Unmarshal(t.Status.Message, &m) != nil || m.Role != "agent" || len(m.Parts) == 0 {
		return fmt.Errorf("state %q and status.message %s, want an agent's message with parts", t.Status.State, short(string(t.Status.Message)))
	}
	return nil
}

func checkTaskFailures(ctx context.Context, p *probe) error {
	f := p.target.Fixture
	if f.FailingPrompt == "" && f.CrashingPrompt == "" {
		return skip("the fixture has neither failing_prompt nor crashing_prompt")
	}
	for _, c := range []struct{ prompt, kind string }{{f.FailingPrompt, "agent_error"}, {f.CrashingPrompt, "infra_error"}} {
		if c.prompt == "" {
			continue
		}
		t, err := p.send(ctx, c.prompt, "")
		if err != nil {
			return err
		}
		if t, err = p.finish(ctx, t.ID); err != nil {
			return err
		}
		text := string(t.Status.Message)
		if t.Status.State != "failed" || !strings.Contains(text, `"`+c.kind+`"`) || !strings.Contains(text, `"error_code"`) || !strings.Contains(text, `"error_message"`) {
			return fmt.Errorf("state %q and %s, want failed with error_type %s, a code and a message", t.Status.State, short(text), c.kind)
		}
		if c.kind == "infra_error" && f.Secret != "" && strings.Contains(text, f.Secret) {
			return errors.New("a crash tells the exception's text")
		}
	}
	return nil
}

func checkOrder(ctx context.Context, p *probe) error {
	first, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	second, err := p.send(ctx, p.prompt(), first.Context)
	if err != nil {
		return err
	}
	if second, err = p.finish(ctx, second.ID); err != nil {
		return err
	}
	t, err := p.task(ctx, "tasks/get", map[string]any{"id": first.ID})
	if err != nil {
		return err
	}
	if !t.ended() || t.Status.Timestamp > second.Status.Timestamp {
		return fmt.Errorf("the first is %s when the second has ended", t.Status.State)
	}
	return nil
}
