package cli

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/trajectory"
)

func openhands() *Profile {
	const version = "1.58.2"
	return &Profile{
		Name: "openhands", Format: "openhands-events/v1", Model: "default", Timeout: 30 * time.Minute, Protocol: "chat",
		From: Version{1, 58, 0}, Before: Version{1, 59, 0},
		Runtime: Runtime{Name: "python3", Min: Version{3, 12, 0}},
		Fields:  []string{FieldModel, FieldSystem, FieldAppend, FieldEffort, FieldIterations, FieldTimeout},
		// It is a library; the program that makes one turn with it is our own.
		Package: Package{Registry: PyPI, Version: version, Names: map[string][]string{"": {"openhands-sdk==" + version, "openhands-tools==" + version}}},
		adapter: openhandsAdapter{},
	}
}

//go:embed assets/openhands_turn.py
var openhandsTurn []byte

type openhandsAdapter struct{}

// countsSessions: what it says was used is of the whole session.
func (openhandsAdapter) countsSessions() {}

const defaultIterations = 500

func (openhandsAdapter) prepare(t *turn) (run, error) {
	servers := []map[string]string{}
	for _, s := range t.servers {
		servers = append(servers, map[string]string{"name": s.Name, "url": s.URL})
	}
	most := t.MaxTurns
	if most == 0 {
		most = defaultIterations
	}
	skills := []string{}
	for _, s := range t.skills {
		skills = append(skills, t.state+"/skills/"+s.Name+"/SKILL.md")
	}
	const program = "openhands_turn.py"
	work := t.work
	if work == "" {
		work = "."
	}
	return run{
		argv: []string{t.node, t.state + "/" + program},
		env: []string{
			"PYTHONPATH=" + Folder, "PYTHONDONTWRITEBYTECODE=1", "OPENHANDS_SUPPRESS_BANNER=1", "DO_NOT_TRACK=1", "LITELLM_LOCAL_MODEL_COST_MAP=True",
			"OTEL_SDK_DISABLED=true",
		},
		files: append(skillFiles("skills", t.skills), file(program, openhandsTurn)),
		stdin: string(jsonOf(map[string]any{
			"model": t.model, "base_url": t.api + "/v1", "api_key": DummyKey, "servers": servers, "workspace": work, "state": t.state + "/conversations",
			"max_iterations": most, "prompt": t.prompt, "session": t.session, "system_prompt": t.SystemPrompt, "append_system_prompt": t.AppendSystemPrompt,
			"effort": t.Effort, "skills": skills,
		})),
	}, nil
}

func (openhandsAdapter) reader(*turn) reader { return &openhandsReader{base: newBase()} }

type openhandsReader struct {
	base
	response string // the model's message that is being heard: each of its calls is an event of its own
}

type openhandsEvent struct {
	Kind      string          `json:"kind"`
	Source    string          `json:"source"`
	At        string          `json:"timestamp"`
	Response  string          `json:"llm_response_id"`
	Thought   json.RawMessage `json:"thought"`
	Reasoning string          `json:"reasoning_content"`
	CallID    string          `json:"tool_call_id"`
	Tool      string          `json:"tool_name"`
	ToolCall  struct {
		Arguments string `json:"arguments"`
	} `json:"tool_call"`
	Message struct {
		Content   json.RawMessage `json:"content"`
		Reasoning string          `json:"reasoning_content"`
	} `json:"llm_message"`
	Observation struct {
		Content json.RawMessage `json:"content"`
		IsError bool            `json:"is_error"`
	} `json:"observation"`
	Error  string `json:"error"`
	Code   string `json:"code"`
	Detail string `json:"detail"`

	// Of the last event, which is our own.
	Session    string   `json:"session"`
	Status     string   `json:"status"`
	Text       string   `json:"text"`
	HTTPStatus int      `json:"http_status"`
	ErrorTypes []string `json:"error_types"`
	Usage      *struct {
		Input  int64 `json:"input"`
		Cached int64 `json:"cached"`
		Output int64 `json:"output"`
	} `json:"usage"`
}

func (r *openhandsReader) read(raw json.RawMessage) bool {
	var e openhandsEvent
	if json.Unmarshal(raw, &e) != nil {
		return true
	}
	at := stamp(e.At)
	switch e.Kind {
	case "ActionEvent":
		a := r.answer(at)
		if e.Response != r.response && (a.Text != "" || a.Calls != nil) {
			a = r.newAnswer(at)
		}
		r.response = e.Response
		if len(e.Thought) > 0 && a.Calls == nil {
			a.Text = content(e.Thought)
		}
		if a.Reasoning == "" {
			a.Reasoning = e.Reasoning
		}
		r.call(a, e.CallID, e.Tool, json.RawMessage(e.ToolCall.Arguments))
	case "ObservationEvent":
		r.returned(at, e.CallID, content(e.Observation.Content), e.Observation.IsError)
	case "AgentErrorEvent", "UserRejectObservation":
		r.returned(at, e.CallID, e.Error, true)
	case "MessageEvent":
		if e.Source == "agent" {
			a := r.newAnswer(at)
			a.Text, a.Reasoning, r.response = content(e.Message.Content), e.Message.Reasoning, e.Response
		}
	case "ConversationErrorEvent":
		if e.Code == "MaxIterationsReached" {
			r.fail(&Fault{Type: AgentError, Code: CodeMaxTurns, Message: e.Detail})
		}
	case "AgentEnvResult":
		r.result(&e)
		return false
	}
	return true
}

func (r *openhandsReader) result(e *openhandsEvent) {
	r.done, r.session, r.text = true, e.Session, e.Text
	if u := e.Usage; u != nil {
		r.usage = &trajectory.Usage{Input: u.Input, Cached: u.Cached, Output: u.Output} // of the whole conversation
	}
	lost := slices.ContainsFunc(e.ErrorTypes, func(s string) bool {
		return strings.Contains(s, "Timeout") || strings.Contains(s, "Connection") || strings.Contains(s, "ServiceUnavailable")
	})
	switch {
	case e.Status == "stuck":
		r.fail(&Fault{Type: AgentError, Code: CodeCommand, Message: "the agent repeated itself until the command stopped it"})
	case e.Error == "" && e.Status == "finished":
	case e.HTTPStatus != 0 && !lost:
		r.fail(endpointFault(e.HTTPStatus, firstLine(e.Error)))
	case lost:
		r.fail(endpointFault(0, firstLine(e.Error)))
	default:
		r.fail(&Fault{Type: AgentError, Code: CodeCommand, Message: join("the command ended as "+e.Status, firstLine(e.Error))})
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
