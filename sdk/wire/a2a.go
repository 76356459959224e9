package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Paths and methods of the A2A protocol, version 0.3.0, JSON-RPC over HTTP.
const (
	A2AVersion        = "0.3.0"
	AgentCardPath     = "/.well-known/agent.json" // the one that callers read
	AgentCardPathNew  = "/.well-known/agent-card.json"
	A2APath           = "/a2a"
	A2AHealthPath     = "/health"
	DefaultA2APort    = 8000
	A2ASend           = "message/send"
	A2AStream         = "message/stream"
	A2AGet            = "tasks/get"
	A2ACancel         = "tasks/cancel"
	A2AResubscribe    = "tasks/resubscribe"
	MaxA2ABody        = 10 << 20 // bytes of a request
	CodeTaskNotFound  = -32001
	CodeNotCancelable = -32002
	CodeNoPush        = -32004
)

// Roles of a Message.
const (
	RoleUser  = "user"
	RoleAgent = "agent"
)

// Message is one message of a conversation.
type Message struct {
	Kind      string          `json:"kind"` // "message"
	MessageID string          `json:"messageId"`
	Role      string          `json:"role"`
	Parts     []Part          `json:"parts"`
	ContextID string          `json:"contextId,omitempty"` // the conversation; absent: a new one
	TaskID    string          `json:"taskId,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// States of a Task.
const (
	TaskSubmitted = "submitted"
	TaskWorking   = "working"
	TaskCompleted = "completed"
	TaskFailed    = "failed"
	TaskCanceled  = "canceled"
	TaskRejected  = "rejected"
)

// TaskEnded tells whether a task in that state changes no more.
func TaskEnded(state string) bool {
	return slices.Contains([]string{TaskCompleted, TaskFailed, TaskCanceled, TaskRejected}, state)
}

// TaskStatus is where a task stands. The reply of one that ended is Message.
type TaskStatus struct {
	State     string   `json:"state"`
	Timestamp string   `json:"timestamp,omitempty"` // RFC 3339
	Message   *Message `json:"message,omitempty"`
}

// Task is one piece of work that a message asked for.
type Task struct {
	Kind      string            `json:"kind"` // "task"
	ID        string            `json:"id"`
	ContextID string            `json:"contextId"`
	Status    TaskStatus        `json:"status"`
	History   []Message         `json:"history,omitempty"`
	Artifacts []json.RawMessage `json:"artifacts,omitempty"`
	Metadata  json.RawMessage   `json:"metadata,omitempty"`
}

// StatusUpdate is an event of a stream. The last one is Final.
type StatusUpdate struct {
	Kind      string          `json:"kind"` // "status-update"
	TaskID    string          `json:"taskId"`
	ContextID string          `json:"contextId"`
	Status    TaskStatus      `json:"status"`
	Final     bool            `json:"final"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// SendParams are those of message/send. Blocking nil waits for the task's end.
type SendParams struct {
	Message       Message        `json:"message"`
	Configuration *SendConfig    `json:"configuration,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
}

// SendConfig says how message/send answers.
type SendConfig struct {
	Blocking            *bool    `json:"blocking,omitempty"`
	HistoryLength       *int     `json:"historyLength,omitempty"`
	AcceptedOutputModes []string `json:"acceptedOutputModes,omitempty"`
}

// Check finds what a message that comes in must not be.
func (m *Message) Check() error {
	var bad []string
	if m.MessageID == "" {
		bad = append(bad, "messageId is missing")
	}
	if m.Role != RoleUser && m.Role != RoleAgent {
		bad = append(bad, "role must be user or agent")
	}
	if len(m.Parts) == 0 {
		bad = append(bad, "parts must hold at least 1 item")
	}
	if len(bad) > 0 {
		return errors.New("message: " + strings.Join(bad, "; "))
	}
	return nil
}

// Text is the last text part; "" when there is none.
func (m *Message) Text() string {
	for _, p := range slices.Backward(m.Parts) {
		if p.Kind == KindText {
			return p.Text
		}
	}
	return ""
}

// Reply is what callers read out of the message of a task that ended.
type Reply struct {
	Text             string
	StructuredOutput json.RawMessage
	ToolCalls        *int64
	Usage            *AgentUsage
	ErrorType        string // AgentError, InfraError, or ""
	ErrorCode        string
	ErrorMessage     string
}

// What failed, in a failed task's data.
const (
	AgentError = "agent_error" // it tried and failed
	InfraError = "infra_error" // it could not run
)

// AgentUsage is what an agent says that a task took.
type AgentUsage struct {
	ToolCallCount *int64   `json:"tool_call_count,omitempty"`
	InputTokens   *int64   `json:"input_tokens,omitempty"`
	OutputTokens  *int64   `json:"output_tokens,omitempty"`
	TotalTokens   *int64   `json:"total_tokens,omitempty"`
	CostUSD       *float64 `json:"cost_usd,omitempty"`
	// ProviderDetails is what a model's endpoint said, as it said it; an object.
	ProviderDetails json.RawMessage `json:"provider_details,omitempty"`
}

// ReadReply reads the message of a task that ended; members of the wrong type count as absent.
func ReadReply(m *Message) Reply {
	var r Reply
	if m == nil {
		return r
	}
	r.Text = m.Text()
	for _, p := range m.Parts {
		if p.Kind != KindData {
			continue
		}
		ms, err := parseObject(p.Data)
		if err != nil {
			continue
		}
		for _, f := range ms {
			r.take(f.name, f.value)
		}
	}
	if r.Usage != nil && r.ToolCalls == nil {
		r.ToolCalls = r.Usage.ToolCallCount
	}
	return r
}

func (r *Reply) take(name string, v json.RawMessage) {
	switch name {
	case "structured_output":
		if !isNull(v) {
			r.StructuredOutput = v
		}
	case "tool_call_count":
		var n int64
		if json.Unmarshal(v, &n) == nil && !isNull(v) {
			r.ToolCalls = &n
		}
	case "usage":
		var u AgentUsage
		if json.Unmarshal(v, &u) == nil && !isNull(v) {
			r.Usage = &u
		}
	case "error_type", "error_class":
		if r.ErrorType == "" {
			_ = json.Unmarshal(v, &r.ErrorType)
		}
	case "error_code":
		_ = json.Unmarshal(v, &r.ErrorCode)
	case "error_message":
		_ = json.Unmarshal(v, &r.ErrorMessage)
	}
}

// AgentCard is what an agent says of itself. Raw is the card as it was read.
type AgentCard struct {
	Name               string            `json:"name"`
	Description        string            `json:"description"`
	Version            string            `json:"version"`
	URL                string            `json:"url"`
	ProtocolVersion    string            `json:"protocolVersion,omitempty"`
	PreferredTransport string            `json:"preferredTransport,omitempty"`
	DefaultInputModes  []string          `json:"defaultInputModes"`
	DefaultOutputModes []string          `json:"defaultOutputModes"`
	Skills             []AgentSkill      `json:"skills"`
	Capabilities       AgentCapabilities `json:"capabilities"`

	Raw json.RawMessage `json:"-"`
}

// AgentSkill is one skill on a card.
type AgentSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// AgentCapabilities are what an agent can do.
type AgentCapabilities struct {
	Streaming              bool        `json:"streaming"`
	PushNotifications      bool        `json:"pushNotifications"`
	StateTransitionHistory bool        `json:"stateTransitionHistory"`
	Extensions             []Extension `json:"extensions,omitempty"`
}

// ParseAgentCard reads a card, whatever it lacks: Missing tells.
func ParseAgentCard(b []byte) (AgentCard, error) {
	var c AgentCard
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("the agent's card can't be read: %w", err)
	}
	c.Raw = slices.Clone(b)
	return c, nil
}

// Missing are the members that a card must have and this one has not, in the order of the protocol.
func (c *AgentCard) Missing() []string {
	var out []string
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"name", c.Name != ""},
		{"description", c.Description != ""},
		{"url", c.URL != ""},
		{"version", c.Version != ""},
		{"defaultInputModes", len(c.DefaultInputModes) > 0},
		{"defaultOutputModes", len(c.DefaultOutputModes) > 0},
		{"skills", c.Skills != nil},
	} {
		if !f.ok {
			out = append(out, f.name)
		}
	}
	return out
}

// Extension is the one of that URN, nil when the agent has none.
func (c *AgentCard) Extension(uri string) *Extension {
	for i := range c.Capabilities.Extensions {
		if c.Capabilities.Extensions[i].URI == uri {
			return &c.Capabilities.Extensions[i]
		}
	}
	return nil
}

// Fields is the set of members that an operation of an agent takes, as its card lists them: unlike an environment's, no JSON Schema.
type Fields struct {
	Required  []string `json:"required"`
	Optional  []string `json:"optional"`
	Supported []string `json:"supported"`
	OneOf     []Fields `json:"oneOf"`
}

// Takes tells whether a request of exactly these members is one that the operation takes.
func (f *Fields) Takes(members ...string) bool {
	if len(f.OneOf) == 0 {
		return f.takes(members, nil)
	}
	for i := range f.OneOf {
		if f.OneOf[i].takes(members, f) {
			return true
		}
	}
	return false
}

// takes tests one branch; base is what all branches share.
func (f *Fields) takes(members []string, base *Fields) bool {
	required := f.Required
	known := slices.Concat(f.Required, f.Optional, f.Supported)
	if base != nil {
		required = slices.Concat(required, base.Required)
		known = slices.Concat(known, base.Required, base.Optional, base.Supported)
	}
	for _, r := range required {
		if !slices.Contains(members, r) {
			return false
		}
	}
	for _, m := range members {
		if !slices.Contains(known, m) {
			return false
		}
	}
	return true
}

// AgentOperation is one operation of an agent's extension.
type AgentOperation struct {
	Method   string // of HTTP
	Endpoint string
	Request  *Fields // nil: the card says nothing
}

// AgentOperation finds an operation by extension and name; ok is false when the card lists none.
func (c *AgentCard) AgentOperation(uri, name string) (op AgentOperation, ok bool) {
	e := c.Extension(uri)
	if e == nil {
		return op, false
	}
	var p struct {
		Endpoint string `json:"endpoint"`
		Methods  map[string]struct {
			Method   string  `json:"method"`
			Endpoint string  `json:"endpoint"`
			Request  *Fields `json:"request"`
		} `json:"methods"`
	}
	if json.Unmarshal(e.Params, &p) != nil {
		return op, false
	}
	m, ok := p.Methods[name]
	if !ok {
		return op, false
	}
	op = AgentOperation{Method: m.Method, Endpoint: m.Endpoint, Request: m.Request}
	if op.Method == "" {
		op.Method = "POST"
	}
	if op.Endpoint == "" {
		op.Endpoint = p.Endpoint
	}
	return op, op.Endpoint != ""
}
