package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func codex() *Profile {
	const version = "0.147.0"
	const vendor = "node_modules/@openai/codex/vendor/"
	return &Profile{
		Name: "codex", Command: "codex", Format: "codex-exec-json/1", Model: "gpt-5", Timeout: 30 * time.Minute, Protocol: "responses",
		From: Version{0, 147, 0}, Before: Version{0, 148, 0},
		Fields: []string{FieldModel, FieldEffort, FieldSystem, FieldOutput, FieldTimeout, FieldProject, FieldTask},
		Package: Package{
			Registry: NPM, Version: version,
			Names: map[string][]string{"amd64": {"@openai/codex@" + version + "-linux-x64"}, "arm64": {"@openai/codex@" + version + "-linux-arm64"}},
			Program: map[string]string{
				"amd64": vendor + "x86_64-unknown-linux-musl/bin/codex", "arm64": vendor + "aarch64-unknown-linux-musl/bin/codex",
			},
		},
		adapter: codexAdapter{},
	}
}

type codexAdapter struct{}

// countsSessions: what it says was used is of the whole session.
func (codexAdapter) countsSessions() {}

// toml writes a text as a TOML value: JSON's form is one.
func toml(s string) string { return string(jsonOf(s)) }

func (codexAdapter) prepare(t *turn) (run, error) {
	var c strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&c, format+"\n", args...) }
	line("model = %s", toml(t.model))
	line("model_provider = \"agentenv\"")
	line("approval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\nweb_search = \"disabled\"\ncheck_for_update_on_startup = false")
	if t.Effort != "" {
		line("model_reasoning_effort = %s", toml(t.Effort))
	}
	if s := t.SystemPrompt; s != "" {
		line("developer_instructions = %s", toml(s))
	}
	line("[analytics]\nenabled = false")
	line("[model_providers.agentenv]\nname = \"agentenv\"\nbase_url = %s\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"", toml(t.api+"/v1"))
	for _, s := range t.servers {
		line("[mcp_servers.%s]\nurl = %s\nrequired = true", toml(s.Name), toml(s.URL))
	}
	r := run{
		argv: []string{t.command, "exec"},
		env:  []string{"CODEX_HOME=" + t.state, "OPENAI_API_KEY=" + DummyKey},
		// The working folder of a sandbox is no repository, and its walls are the sandbox.
		stdin: t.prompt,
	}
	if t.session != "" {
		r.argv = append(r.argv, "resume", t.session)
	}
	r.argv = append(r.argv, "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
	r.files = append(skillFiles("skills", t.skills), file("config.toml", []byte(c.String())))
	if len(t.OutputFormat) > 0 {
		const schema = "answer.schema.json"
		r.files = append(r.files, file(schema, t.OutputFormat))
		r.argv = append(r.argv, "--output-schema", t.state+"/"+schema)
	}
	r.argv = append(r.argv, "-")
	return r, nil
}

func (codexAdapter) reader(t *turn) reader {
	return &codexReader{base: newBase(), schema: len(t.OutputFormat) > 0, begun: map[string]string{}}
}

type codexReader struct {
	base
	schema bool
	begun  map[string]string // ids of the trajectory by those of items that have begun
	n      int
}

type codexEvent struct {
	Type    string `json:"type"`
	Thread  string `json:"thread_id"`
	Message string `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Item  json.RawMessage `json:"item"`
	Usage *struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cached_input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
}

type codexItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Status    string          `json:"status"`
	Result    *struct {
		Content    json.RawMessage `json:"content"`
		Structured json.RawMessage `json:"structured_content"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Command  string          `json:"command"`
	Output   string          `json:"aggregated_output"`
	ExitCode *int            `json:"exit_code"`
	Changes  json.RawMessage `json:"changes"`
	Query    string          `json:"query"`
	Items    json.RawMessage `json:"items"`
}

func (r *codexReader) read(raw json.RawMessage) bool {
	var e codexEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	switch e.Type {
	case "thread.started":
		r.session = e.Thread
	case "item.started", "item.updated", "item.completed":
		var it codexItem
		if json.Unmarshal(e.Item, &it) == nil {
			r.item(&it, strings.TrimPrefix(e.Type, "item."))
		}
	case "turn.completed":
		r.done = true
		if u := e.Usage; u != nil {
			r.usage = &trajectory.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output} // of the whole session
		}
	case "turn.failed":
		r.done = true
		r.fail(codexFault(e.Error.Message))
	}
	return true
}

func codexFault(message string) *Fault {
	status := statusIn(message)
	if status == 0 && !slices.ContainsFunc([]string{"stream disconnected", "error sending request", "onnection", "timed out", "timeout"}, func(s string) bool {
		return strings.Contains(message, s)
	}) {
		return &Fault{Type: AgentError, Code: CodeCommand, Message: message}
	}
	return endpointFault(status, message)
}

func (r *codexReader) item(it *codexItem, stage string) {
	ended := stage == "completed"
	switch it.Type {
	case "agent_message":
		if ended {
			a := r.answer(time.Time{})
			if a.Calls != nil {
				a = r.newAnswer(time.Time{})
			}
			a.Text = join(a.Text, it.Text)
			r.text = it.Text
			if r.schema {
				r.structured = structuredIn(it.Text)
			}
		}
	case "reasoning":
		if ended {
			a := r.answer(time.Time{})
			if a.Text != "" || a.Calls != nil {
				a = r.newAnswer(time.Time{})
			}
			a.Reasoning = join(a.Reasoning, it.Text)
		}
	case "error", "todo_list", "":
	default:
		r.tool(it, ended)
	}
}

// tool is a call of any of the command's tools. Its items carry numbers of the turn, which another turn uses again.
func (r *codexReader) tool(it *codexItem, ended bool) {
	name, args := codexCall(it)
	id, begun := r.begun[it.ID]
	if !begun {
		r.n++
		id = "call_" + strconv.Itoa(r.n)
		r.begun[it.ID] = id
		r.call(r.answer(time.Time{}), id, name, args)
	}
	if !ended {
		return
	}
	delete(r.begun, it.ID)
	text, failed := it.Output, it.Status == "failed" || it.Status == "declined" || it.ExitCode != nil && *it.ExitCode != 0
	switch {
	case it.Error != nil:
		text = it.Error.Message
	case it.Result != nil:
		text = content(it.Result.Content)
	case it.Changes != nil:
		text = it.Status
	}
	r.returned(time.Time{}, id, text, failed)
}

func codexCall(it *codexItem) (name string, args json.RawMessage) {
	switch it.Type {
	case "mcp_tool_call":
		return "mcp__" + it.Server + "__" + it.Tool, it.Arguments
	case "command_execution":
		return "exec_command", jsonOf(map[string]string{"cmd": it.Command})
	case "file_change":
		return "apply_patch", jsonOf(map[string]any{"changes": orNull(it.Changes)})
	case "web_search":
		return "web_search", jsonOf(map[string]string{"query": it.Query})
	}
	return it.Type, it.Arguments
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
