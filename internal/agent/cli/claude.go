package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func claudeCode() *Profile {
	const version = "2.1.280"
	return &Profile{
		Name: "claude-code", Command: "claude", Format: "claude-code-stream-json/1", Model: "claude-sonnet-4-6", Timeout: 30 * time.Minute, Protocol: "messages",
		From: Version{2, 1, 0}, Before: Version{2, 2, 0},
		Fields: []string{FieldTimeout, FieldModel, FieldAllowed, FieldSystem, FieldOutput, FieldEffort, FieldMaxTurns, FieldMaxThinking, FieldProject, FieldTask},
		// The package of a platform is the program itself; the one that people install by hand would need Node to choose it.
		Package: Package{
			Registry: NPM, Version: version,
			Names: map[string][]string{
				"amd64": {"@anthropic-ai/claude-code-linux-x64@" + version}, "arm64": {"@anthropic-ai/claude-code-linux-arm64@" + version},
			},
			Program: map[string]string{
				"amd64": "node_modules/@anthropic-ai/claude-code-linux-x64/claude", "arm64": "node_modules/@anthropic-ai/claude-code-linux-arm64/claude",
			},
		},
		adapter: claudeAdapter{},
	}
}

type claudeAdapter struct{}

func (claudeAdapter) prepare(t *turn) (run, error) {
	servers := map[string]any{}
	for _, s := range t.servers {
		servers[s.Name] = map[string]any{"type": "http", "url": s.URL}
	}
	const mcp = "mcp.json"
	r := run{
		argv: []string{
			t.command, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--model", t.model,
			"--strict-mcp-config", "--mcp-config", t.state + "/" + mcp,
		},
		// A sandbox's root may skip permissions when the command is told that it is in one.
		env: []string{
			"ANTHROPIC_BASE_URL=" + t.api, "ANTHROPIC_API_KEY=" + DummyKey, "CLAUDE_CONFIG_DIR=" + t.state, "IS_SANDBOX=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
			"DISABLE_NON_ESSENTIAL_MODEL_CALLS=1",
			// Calls in the background, such as those for titles, go to the one model that there is.
			"ANTHROPIC_DEFAULT_HAIKU_MODEL=" + t.model, "CLAUDE_CODE_SUBAGENT_MODEL=" + t.model,
		},
		stdin: t.prompt,
	}
	r.files = append(skillFiles("skills", t.skills), file(mcp, jsonOf(map[string]any{"mcpServers": servers})))
	add := func(flag, value string) {
		if value != "" {
			r.argv = append(r.argv, flag, value)
		}
	}
	add("--resume", t.session)
	add("--append-system-prompt", t.SystemPrompt)
	add("--effort", t.Effort)
	add("--json-schema", string(t.OutputFormat))
	if t.MaxTurns > 0 {
		add("--max-turns", strconv.Itoa(t.MaxTurns))
	}
	if t.MaxThinking > 0 {
		r.env = append(r.env, "MAX_THINKING_TOKENS="+strconv.Itoa(t.MaxThinking))
	}
	if t.AllowedTools != nil {
		r.argv = append(r.argv, "--tools="+strings.Join(t.AllowedTools, ","))
	}
	return r, nil
}

func (claudeAdapter) reader(*turn) reader { return &claudeReader{base: newBase()} }

type claudeReader struct {
	base
	message string // the id of the model's message that is being heard
}

type claudeEvent struct {
	Type      string    `json:"type"`
	Subtype   string    `json:"subtype"`
	Session   string    `json:"session_id"`
	Parent    *string   `json:"parent_tool_use_id"` // of a helper's events
	At        time.Time `json:"timestamp"`
	Synthetic bool      `json:"is_api_error_message"`
	Message   struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
	} `json:"message"`
	Servers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
	claudeResult
}

// claudeResult is the last event.
type claudeResult struct {
	IsError    bool            `json:"is_error"`
	Status     *int            `json:"api_error_status"`
	Result     string          `json:"result"`
	Structured json.RawMessage `json:"structured_output"`
	Stop       string          `json:"stop_reason"`
	Errors     []string        `json:"errors"`
	Usage      *struct {
		Input   int64 `json:"input_tokens"`
		Written int64 `json:"cache_creation_input_tokens"`
		Cached  int64 `json:"cache_read_input_tokens"`
		Output  int64 `json:"output_tokens"`
	} `json:"usage"`
}

func (r *claudeReader) read(raw json.RawMessage) bool {
	var e claudeEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	if e.Session != "" {
		r.session = e.Session
	}
	switch e.Type {
	case "system":
		for _, s := range e.Servers {
			if s.Status == "failed" {
				r.fail(&Fault{Type: InfraError, Code: CodeTools, Message: fmt.Sprintf("the command could not connect to the MCP server %s", s.Name)})
			}
		}
	case "assistant":
		if e.Parent == nil && !e.Synthetic {
			r.assistant(&e)
		}
	case "user":
		if e.Parent == nil {
			r.user(&e)
		}
	case "result":
		r.result(&e)
	case "stream_event":
		return false
	}
	return true
}

func (r *claudeReader) assistant(e *claudeEvent) {
	var blocks []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking string          `json:"thinking"`
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Input    json.RawMessage `json:"input"`
	}
	if json.Unmarshal(e.Message.Content, &blocks) != nil {
		return
	}
	// Each block of a message is an event of its own.
	a := r.answer(e.At)
	if r.message != e.Message.ID && (a.Text != "" || a.Reasoning != "" || a.Calls != nil) {
		a = r.newAnswer(e.At)
	}
	r.message, a.Model = e.Message.ID, e.Message.Model
	for _, b := range blocks {
		switch b.Type {
		case "text":
			a.Text += b.Text
			r.text = a.Text
		case "thinking":
			a.Reasoning += b.Thinking
		case "tool_use":
			r.call(a, b.ID, b.Name, b.Input)
		}
	}
}

func (r *claudeReader) user(e *claudeEvent) {
	var blocks []struct {
		Type    string          `json:"type"`
		ID      string          `json:"tool_use_id"`
		Content json.RawMessage `json:"content"`
		IsError bool            `json:"is_error"`
	}
	if json.Unmarshal(e.Message.Content, &blocks) != nil {
		return
	}
	for _, b := range blocks {
		if b.Type == "tool_result" {
			r.returned(e.At, b.ID, content(b.Content), b.IsError)
		}
	}
}

func (r *claudeReader) result(e *claudeEvent) {
	r.done = true
	if u := e.Usage; u != nil {
		r.usage = &trajectory.Usage{Input: u.Input + u.Written + u.Cached, Cached: u.Cached, Output: u.Output}
	}
	if len(e.Structured) > 0 && string(e.Structured) != "null" {
		r.structured = e.Structured
	}
	if e.Result != "" && !e.IsError {
		r.text = e.Result
	}
	why := join(e.Result, strings.Join(e.Errors, "; "))
	switch {
	case e.Subtype == "error_max_turns":
		r.fail(&Fault{Type: AgentError, Code: CodeMaxTurns, Message: "the agent had not finished after the most answers of its model that it may have"})
	case e.Subtype == "error_max_structured_output_retries":
		r.fail(&Fault{Type: AgentError, Code: CodeSchema, Message: "the agent did not answer in the wanted form"})
	case e.Stop == "refusal":
		r.fail(&Fault{Type: AgentError, Code: CodeRefusal, Message: join("the model would not answer", e.Result)})
	case !e.IsError:
	case e.Status != nil:
		r.fail(endpointFault(*e.Status, why))
	case strings.HasPrefix(e.Result, "API Error"):
		r.fail(endpointFault(statusIn(e.Result), why))
	default:
		r.fail(&Fault{Type: AgentError, Code: CodeCommand, Message: why})
	}
}
