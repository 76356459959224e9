package cli

import (
	_ "embed"
	"encoding/json"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func pi() *Profile {
	const version = "0.73.1"
	return &Profile{
		Name: "pi", Command: "pi", Format: "pi-json-events/v1", Model: "default", Timeout: 30 * time.Minute, Protocol: "chat",
		From: Version{0, 73, 0}, Before: Version{0, 74, 0},
		Runtime: Runtime{Name: "node", Min: Version{20, 6, 0}},
		Fields:  []string{FieldModel, FieldSystem, FieldAppend, FieldEffort, FieldTools, FieldContext, FieldMaxTokens, FieldTimeout},
		Package: Package{
			Registry: NPM, Version: version, Names: map[string][]string{"": {"@mariozechner/pi-coding-agent@" + version}},
			Program: map[string]string{"": "node_modules/@mariozechner/pi-coding-agent/dist/cli.js"},
		},
		adapter: piAdapter{},
	}
}

// piTools is an extension of pi that gives it the tools of MCP servers.
//
//go:embed assets/pi_mcp.mjs
var piTools string

type piAdapter struct{}

func (piAdapter) prepare(t *turn) (run, error) {
	const key = "AGENTENV_MODEL_KEY"
	window, most := t.ContextWindow, t.MaxTokens
	if window == 0 {
		window = 200_000
	}
	if most == 0 {
		most = 32_000
	}
	models := map[string]any{"providers": map[string]any{"agentenv": map[string]any{
		"baseUrl": t.api + "/v1", "api": "openai-completions", "apiKey": key,
		"models": []any{map[string]any{
			"id": t.model, "name": t.model, "reasoning": t.Effort != "", "input": []string{"text", "image"}, "contextWindow": window, "maxTokens": most,
			"cost": map[string]any{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
		}},
	}}}
	r := run{
		argv: program(t, "--mode", "json", "--print", "--provider", "agentenv", "--model", t.model, "--offline"),
		env: []string{
			"PI_CODING_AGENT_DIR=" + t.state, "PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0", key + "=" + DummyKey,
		},
		stdin: t.prompt,
	}
	r.files = append(skillFiles("skills", t.skills), file("models.json", jsonOf(models)))
	if len(t.servers) > 0 {
		list := []map[string]string{}
		for _, s := range t.servers {
			list = append(list, map[string]string{"name": s.Name, "url": s.URL})
		}
		r.files = append(r.files, file("agentenv_mcp.mjs", []byte("const servers = "+string(jsonOf(list))+";\n"+piTools)))
		r.argv = append(r.argv, "--extension", t.state+"/agentenv_mcp.mjs")
	}
	add := func(flag, value string) {
		if value != "" {
			r.argv = append(r.argv, flag, value)
		}
	}
	add("--session", t.session)
	add("--system-prompt", t.SystemPrompt)
	add("--append-system-prompt", t.AppendSystemPrompt)
	add("--thinking", t.Effort)
	if t.AllowedTools != nil {
		add("--tools", strings.Join(t.AllowedTools, ","))
	}
	return r, nil
}

func (piAdapter) reader(*turn) reader { return &piReader{base: newBase()} }

type piReader struct{ base }

type piEvent struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"` // of a session
	Message json.RawMessage `json:"message"`
}

type piMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Model   string          `json:"model"`
	Stop    string          `json:"stopReason"`
	Error   string          `json:"errorMessage"`
	At      int64           `json:"timestamp"`
	CallID  string          `json:"toolCallId"`
	IsError bool            `json:"isError"`
	Usage   *struct {
		Input   int64 `json:"input"`
		Output  int64 `json:"output"`
		Cached  int64 `json:"cacheRead"`
		Written int64 `json:"cacheWrite"`
	} `json:"usage"`
}

func (r *piReader) read(raw json.RawMessage) bool {
	var e piEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	switch e.Type {
	case "session":
		r.session = e.ID
	case "message_update", "message_start", "turn_end", "tool_execution_update":
		return false // what ends comes whole in message_end
	case "message_end":
		var m piMessage
		if json.Unmarshal(e.Message, &m) != nil {
			return true
		}
		switch m.Role {
		case "assistant":
			r.assistant(&m)
		case "toolResult":
			r.returned(millis(m.At), m.CallID, content(m.Content), m.IsError)
		}
	case "agent_end":
		r.done = true
		return false // it repeats all messages
	}
	return true
}

func (r *piReader) assistant(m *piMessage) {
	var blocks []struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(m.Content, &blocks) // no blocks, no message
	// A fault is one only when nothing came after it: the command asks again by itself.
	r.fault = nil
	switch m.Stop {
	case "error":
		r.fault = piFault(m.Error)
	case "aborted":
		r.fault = &Fault{Type: AgentError, Code: CodeCommand, Message: join("the turn was aborted", m.Error)}
	}
	if len(blocks) == 0 && r.fault != nil {
		return
	}
	a := r.newAnswer(millis(m.At))
	a.Model = m.Model
	for _, b := range blocks {
		switch b.Type {
		case "text":
			a.Text += b.Text
		case "thinking":
			a.Reasoning = join(a.Reasoning, b.Thinking)
		case "toolCall":
			r.call(a, b.ID, b.Name, b.Arguments)
		}
	}
	if a.Text != "" {
		r.text = a.Text
	}
	if u := m.Usage; u != nil {
		a.Usage = &trajectory.Usage{Input: u.Input + u.Cached + u.Written, Cached: u.Cached, Output: u.Output}
		if r.usage == nil {
			r.usage = &trajectory.Usage{}
		}
		r.usage.Input, r.usage.Cached, r.usage.Output = r.usage.Input+a.Usage.Input, r.usage.Cached+a.Usage.Cached, r.usage.Output+a.Usage.Output
	}
}

func piFault(message string) *Fault {
	status := statusIn(message)
	for _, s := range []string{"onnection", "fetch failed", "timed out", "terminated", "socket"} {
		if status != 0 || strings.Contains(message, s) {
			return endpointFault(status, message)
		}
	}
	return &Fault{Type: AgentError, Code: CodeCommand, Message: message}
}
