package cli

import (
	"encoding/json"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func opencode() *Profile {
	const version = "1.17.18"
	return &Profile{
		Name: "opencode", Command: "opencode", Format: "opencode-events/1", Model: "default", Timeout: 30 * time.Minute, Protocol: "chat",
		From: Version{1, 17, 0}, Before: Version{1, 18, 0},
		Fields: []string{FieldModel, FieldEffort, FieldSystem, FieldOutput, FieldTimeout, FieldProject, FieldTask},
		// The baseline program runs on processors without AVX2 too.
		Package: Package{
			Registry: NPM, Version: version,
			Names:   map[string][]string{"amd64": {"opencode-linux-x64-baseline@" + version}, "arm64": {"opencode-linux-arm64@" + version}},
			Program: map[string]string{"amd64": "node_modules/opencode-linux-x64-baseline/bin/opencode", "arm64": "node_modules/opencode-linux-arm64/bin/opencode"},
		},
		adapter: opencodeAdapter{},
	}
}

type opencodeAdapter struct{}

const opencodeProvider = "agentenv"

func (opencodeAdapter) prepare(t *turn) (run, error) {
	servers := map[string]any{}
	for _, s := range t.servers {
		servers[s.Name] = map[string]any{"type": "remote", "url": s.URL, "enabled": true, "oauth": false}
	}
	options := map[string]any{}
	if t.Effort != "" {
		options["reasoningEffort"] = t.Effort
	}
	const rules = "instructions.md"
	model := opencodeProvider + "/" + t.model
	config := map[string]any{
		"$schema": "https://opencode.ai/config.json", "autoupdate": false, "share": "disabled", "model": model, "small_model": model,
		"permission": map[string]any{"edit": "allow", "bash": "allow", "webfetch": "allow", "external_directory": "allow", "doom_loop": "allow"},
		"provider": map[string]any{opencodeProvider: map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": opencodeProvider, "options": map[string]any{"baseURL": t.api + "/v1", "apiKey": DummyKey},
			"models": map[string]any{t.model: map[string]any{
				"name": t.model, "tool_call": true, "attachment": true, "limit": map[string]any{"context": 200_000, "output": 32_000}, "options": options,
			}},
		}},
		"mcp": servers,
	}
	const home = "config/opencode"
	r := run{
		argv: []string{t.command, "run", "--format", "json", "--auto", "--title", "agent-env"},
		env: []string{
			"OPENCODE_CONFIG=" + t.state + "/opencode.json", "XDG_CONFIG_HOME=" + t.state + "/config", "XDG_DATA_HOME=" + t.state + "/data",
			"XDG_STATE_HOME=" + t.state + "/state", "XDG_CACHE_HOME=" + t.state + "/cache", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
		},
		stdin: t.prompt + asked(t.OutputFormat),
	}
	if t.session != "" {
		r.argv = append(r.argv, "--session", t.session)
	}
	r.files = skillFiles(home+"/skill", t.skills)
	if s := t.SystemPrompt; s != "" {
		r.files = append(r.files, file(rules, []byte(s)))
		config["instructions"] = []string{t.state + "/" + rules}
	}
	r.files = append(r.files, file("opencode.json", jsonOf(config)))
	return r, nil
}

// asked is what a prompt ends with where the command has no other way to be told the form of its answer.
func asked(schema json.RawMessage) string {
	if len(schema) == 0 {
		return ""
	}
	return "\n\nYour last message is read by a program: it must be nothing but JSON that is valid under this schema.\n" + string(schema)
}

func (opencodeAdapter) reader(t *turn) reader {
	return &opencodeReader{base: newBase(), schema: len(t.OutputFormat) > 0}
}

type opencodeReader struct {
	base
	schema bool
}

type opencodeEvent struct {
	Type    string `json:"type"`
	At      int64  `json:"timestamp"`
	Session string `json:"sessionID"`
	Part    struct {
		Text   string `json:"text"`
		Tool   string `json:"tool"`
		CallID string `json:"callID"`
		Reason string `json:"reason"`
		State  struct {
			Status string          `json:"status"`
			Input  json.RawMessage `json:"input"`
			Output string          `json:"output"`
			Error  string          `json:"error"`
		} `json:"state"`
		Tokens *struct {
			Input     int64 `json:"input"`
			Output    int64 `json:"output"`
			Reasoning int64 `json:"reasoning"`
			Cache     struct {
				Read  int64 `json:"read"`
				Write int64 `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	} `json:"part"`
	Error struct {
		Name string `json:"name"`
		Data struct {
			Message   string `json:"message"`
			Status    int    `json:"statusCode"`
			Retryable bool   `json:"isRetryable"`
		} `json:"data"`
	} `json:"error"`
}

func (r *opencodeReader) read(raw json.RawMessage) bool {
	var e opencodeEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	if e.Session != "" {
		r.session = e.Session
	}
	at, p := millis(e.At), &e.Part
	switch e.Type {
	case "step_start":
		r.newAnswer(at)
	case "text":
		a := r.said(at)
		a.Text += p.Text
		r.text = a.Text
	case "reasoning":
		a := r.said(at)
		a.Reasoning = join(a.Reasoning, p.Text)
	case "tool_use":
		r.call(r.said(at), p.CallID, p.Tool, p.State.Input)
		text := p.State.Output
		if text == "" {
			text = p.State.Error
		}
		r.returned(at, p.CallID, text, p.State.Status == "error")
	case "step_finish":
		r.finish(&e)
	case "error":
		r.fail(opencodeFault(&e))
	}
	return true
}

// said is the model's message of the step: results of its calls may follow it already.
func (r *opencodeReader) said(at time.Time) *trajectory.Event {
	for i := len(r.events) - 1; i >= 0; i-- {
		if r.events[i].Kind == trajectory.Answered {
			return &r.events[i]
		}
	}
	return r.newAnswer(at)
}

func (r *opencodeReader) finish(e *opencodeEvent) {
	// Only the last step ends with another reason than calls.
	r.done = e.Part.Reason != "tool-calls"
	if r.done && r.schema {
		r.structured = structuredIn(r.text)
	}
	t := e.Part.Tokens
	if t == nil {
		return
	}
	u := trajectory.Usage{Input: t.Input + t.Cache.Read + t.Cache.Write, Cached: t.Cache.Read, Output: t.Output + t.Reasoning}
	r.said(millis(e.At)).Usage = &u
	if r.usage == nil {
		r.usage = &trajectory.Usage{}
	}
	r.usage.Input, r.usage.Cached, r.usage.Output = r.usage.Input+u.Input, r.usage.Cached+u.Cached, r.usage.Output+u.Output
}

func opencodeFault(e *opencodeEvent) *Fault {
	message := e.Error.Data.Message
	if message == "" {
		message = e.Error.Name
	}
	switch n := e.Error.Name; {
	case n == "ProviderAuthError":
		return &Fault{Type: InfraError, Code: CodeModel, Message: message}
	case n == "StructuredOutputError":
		return &Fault{Type: AgentError, Code: CodeSchema, Message: message}
	case n == "ContextOverflowError" || n == "MessageOutputLengthError":
		return &Fault{Type: AgentError, Code: CodeRequest, Message: message}
	case n == "APIError":
		f := endpointFault(e.Error.Data.Status, message)
		f.Passing = f.Passing || e.Error.Data.Retryable
		return f
	case strings.Contains(message, "Unable to connect") || strings.Contains(message, "ECONN"):
		return endpointFault(0, message)
	}
	return &Fault{Type: AgentError, Code: CodeCommand, Message: message}
}
