package cli

import (
	"encoding/json"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func gemini() *Profile {
	const version = "0.38.2"
	return &Profile{
		Name: "gemini", Command: "gemini", Format: "gemini-stream-json/1", Model: "gemini-2.5-pro", Timeout: 10 * time.Minute, Protocol: "gemini",
		From: Version{0, 38, 0}, Before: Version{0, 39, 0},
		Runtime: Runtime{Name: "node", Min: Version{20, 0, 0}},
		Fields:  []string{FieldTimeout, FieldModel, FieldAllowed, FieldSystem, FieldProject, FieldTask},
		Package: Package{
			Registry: NPM, Version: version, Names: map[string][]string{"": {"@google/gemini-cli@" + version}},
			Program: map[string]string{"": "node_modules/@google/gemini-cli/bundle/gemini.js"},
		},
		adapter: geminiAdapter{},
	}
}

type geminiAdapter struct{}

func (geminiAdapter) prepare(t *turn) (run, error) {
	servers := map[string]any{}
	for _, s := range t.servers {
		servers[s.Name] = map[string]any{"httpUrl": s.URL, "trust": true}
	}
	const home = ".gemini" // below what it is told to take for its user's home
	settings := map[string]any{
		"general":    map[string]any{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "disableAutoUpdate": true},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"telemetry":  map[string]any{"enabled": false},
		"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": map[string]any{"enabled": false}},
		"context":    map[string]any{"fileName": []string{"GEMINI.md"}},
		"mcpServers": servers,
	}
	r := run{
		argv: program(t, "--yolo", "--output-format", "stream-json", "--model", t.model),
		env: []string{
			"GEMINI_CLI_HOME=" + t.state, "GEMINI_API_KEY=" + DummyKey, "GOOGLE_GEMINI_BASE_URL=" + t.api, "GEMINI_CLI_NO_RELAUNCH=true",
			"GEMINI_TELEMETRY_ENABLED=false",
		},
		stdin: t.prompt, // read from a pipe it is the one prompt of a run without a person
	}
	if t.session != "" {
		r.argv = append(r.argv, "--resume", t.session)
	}
	r.files = append(skillFiles(home+"/skills", t.skills), file(home+"/settings.json", jsonOf(settings)))
	if s := t.SystemPrompt; s != "" {
		r.files = append(r.files, file(home+"/GEMINI.md", []byte(s)))
	}
	return r, nil
}

// program is a command that its runtime is started with where one was found for it.
func program(t *turn, args ...string) []string {
	argv := []string{t.command}
	if t.node != "" {
		argv = []string{t.node, t.command}
	}
	return append(argv, args...)
}

func (geminiAdapter) reader(*turn) reader { return &geminiReader{base: newBase()} }

type geminiReader struct{ base }

type geminiEvent struct {
	Type       string          `json:"type"`
	At         time.Time       `json:"timestamp"`
	Session    string          `json:"session_id"`
	Model      string          `json:"model"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	Tool       string          `json:"tool_name"`
	ID         string          `json:"tool_id"`
	Parameters json.RawMessage `json:"parameters"`
	Status     string          `json:"status"`
	Output     string          `json:"output"`
	Severity   string          `json:"severity"`
	Message    string          `json:"message"`
	Error      *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats *struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64 `json:"cached"`
	} `json:"stats"`
}

func (r *geminiReader) read(raw json.RawMessage) bool {
	var e geminiEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	switch e.Type {
	case "init":
		r.session = e.Session
	case "message":
		if e.Role == "assistant" {
			a := r.answer(e.At)
			if a.Calls != nil {
				a = r.newAnswer(e.At)
			}
			a.Text += e.Content
			r.text = a.Text
		}
	case "tool_use":
		r.call(r.answer(e.At), e.ID, e.Tool, e.Parameters)
	case "tool_result":
		text := e.Output
		if e.Error != nil && text == "" {
			text = e.Error.Message
		}
		r.returned(e.At, e.ID, text, e.Status == "error")
	case "result":
		r.result(&e)
	}
	return true
}

func (r *geminiReader) result(e *geminiEvent) {
	r.done = true
	if s := e.Stats; s != nil {
		r.usage = &trajectory.Usage{Input: s.Input, Cached: s.Cached, Output: s.Output}
	}
	if e.Status != "error" {
		return
	}
	var kind, message string
	if e.Error != nil {
		kind, message = e.Error.Type, e.Error.Message
	}
	status := statusIn(message)
	switch {
	case strings.Contains(kind, "TurnLimited") || strings.Contains(message, "max session turns"):
		r.fail(&Fault{Type: AgentError, Code: CodeMaxTurns, Message: message})
	case status != 0 || strings.Contains(message, "fetch failed") || strings.Contains(message, "ECONN") || strings.Contains(message, "API Error"):
		r.fail(endpointFault(status, message))
	default:
		r.fail(&Fault{Type: AgentError, Code: CodeCommand, Message: message})
	}
}
