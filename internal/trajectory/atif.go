// Package trajectory is what an agent did, in the Agent Trajectory Interchange Format (ATIF, written as v1.8 and read from v1.0 on), and the
// record of events that it is folded from. It is pure.
//
// Words: an event is one thing that happened (a message, a model's answer, a tool's result), appended as it happens; Fold makes the
// document of as many events as there are, so a killed agent's trajectory is valid and ends with what was completed last.
package trajectory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// SchemaVersion is what is written.
const SchemaVersion = "ATIF-v1.8"

// Sources of a step.
const (
	System = "system"
	User   = "user"
	Agent  = "agent"
)

// Trajectory is the root of a document.
type Trajectory struct {
	SchemaVersion string          `json:"schema_version"`
	SessionID     string          `json:"session_id,omitempty"`
	TrajectoryID  string          `json:"trajectory_id,omitempty"`
	Agent         AgentInfo       `json:"agent"`
	Steps         []Step          `json:"steps"` // at least one
	Notes         string          `json:"notes,omitempty"`
	FinalMetrics  *FinalMetrics   `json:"final_metrics,omitempty"`
	Continued     *Ref            `json:"continued_trajectory_ref,omitempty"`
	Subagents     []Trajectory    `json:"subagent_trajectories,omitempty"`
	Extra         json.RawMessage `json:"extra,omitempty"`
}

// AgentInfo says who acted.
type AgentInfo struct {
	Name            string            `json:"name"`
	Version         string            `json:"version"`
	ModelName       string            `json:"model_name,omitempty"`
	ToolDefinitions []json.RawMessage `json:"tool_definitions,omitempty"`
	Extra           json.RawMessage   `json:"extra,omitempty"`
}

// Step is one turn. The fields from ModelName to Metrics are the agent's alone.
type Step struct {
	StepID       int             `json:"step_id"` // 1, 2, 3, …
	Timestamp    string          `json:"timestamp,omitempty"`
	Source       string          `json:"source"`
	Message      Content         `json:"message"`
	ModelName    string          `json:"model_name,omitempty"`
	Effort       json.RawMessage `json:"reasoning_effort,omitempty"` // text or number
	Reasoning    string          `json:"reasoning_content,omitempty"`
	ToolCalls    []ToolCall      `json:"tool_calls,omitempty"`
	Metrics      *Metrics        `json:"metrics,omitempty"`
	Observation  *Observation    `json:"observation,omitempty"`
	Copied       *bool           `json:"is_copied_context,omitempty"`
	LLMCallCount *int            `json:"llm_call_count,omitempty"`
	Extra        json.RawMessage `json:"extra,omitempty"`
}

// ToolCall is one call of a step.
type ToolCall struct {
	ID        string          `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"` // an object
	Extra     json.RawMessage `json:"extra,omitempty"`
}

// Observation is what came back.
type Observation struct {
	Results []Result `json:"results"`
}

// Result answers one call of the same step.
type Result struct {
	CallID  string          `json:"source_call_id,omitempty"`
	Content *Content        `json:"content,omitempty"`
	Sub     []Ref           `json:"subagent_trajectory_ref,omitempty"`
	Extra   json.RawMessage `json:"extra,omitempty"`
}

// Content is text, or parts.
type Content struct {
	Text  string
	Parts []Part // nil: Text
}

// Part is text, an image or audio.
type Part struct {
	Type   string  `json:"type"`
	Text   string  `json:"text,omitempty"`
	Source *Source `json:"source,omitempty"`
}

// Source is where an image or a sound lies: a path relative to the document, or a URL.
type Source struct {
	Media    string   `json:"media_type"`
	Path     string   `json:"path"`
	Duration *float64 `json:"duration_sec,omitempty"`
}

// Metrics are a step's tokens; PromptTokens include cached ones.
type Metrics struct {
	PromptTokens     *int64            `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64            `json:"completion_tokens,omitempty"`
	CachedTokens     *int64            `json:"cached_tokens,omitempty"`
	CostUSD          *float64          `json:"cost_usd,omitempty"`
	PromptIDs        []int64           `json:"prompt_token_ids,omitempty"`
	CompletionIDs    []int64           `json:"completion_token_ids,omitempty"`
	Logprobs         []json.RawMessage `json:"logprobs,omitempty"`
	Extra            json.RawMessage   `json:"extra,omitempty"`
}

// FinalMetrics are sums.
type FinalMetrics struct {
	PromptTokens     *int64          `json:"total_prompt_tokens,omitempty"`
	CompletionTokens *int64          `json:"total_completion_tokens,omitempty"`
	CachedTokens     *int64          `json:"total_cached_tokens,omitempty"`
	CostUSD          *float64        `json:"total_cost_usd,omitempty"`
	Steps            *int            `json:"total_steps,omitempty"`
	Extra            json.RawMessage `json:"extra,omitempty"`
}

// Ref names another trajectory.
type Ref struct {
	TrajectoryID   string          `json:"trajectory_id,omitempty"`
	TrajectoryPath string          `json:"trajectory_path,omitempty"`
	SessionID      string          `json:"session_id,omitempty"`
	Extra          json.RawMessage `json:"extra,omitempty"`
}

// MarshalJSON writes a text, or a list of parts.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return json.Marshal(c.Parts)
	}
	return json.Marshal(c.Text)
}

// UnmarshalJSON reads either.
func (c *Content) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		c.Parts = []Part{}
		return d.Decode(&c.Parts)
	}
	return json.Unmarshal(b, &c.Text)
}

var versionForm = lazyregexp.New(`^ATIF-v1\.[0-8]$`)

// Parse reads a document strictly: unknown fields are refused outside of extra.
func Parse(b []byte) (*Trajectory, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var t Trajectory
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("the trajectory is not valid: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the trajectory is not valid: something follows it")
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return &t, nil
}

// Check finds all that the format's rules forbid.
func (t *Trajectory) Check() error {
	var faults []string
	t.check("", func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) })
	if len(faults) > 0 {
		return errors.New("the trajectory is not valid: " + strings.Join(faults, "; "))
	}
	return nil
}

func (t *Trajectory) check(at string, fault func(string, ...any)) {
	if !versionForm().MatchString(t.SchemaVersion) {
		fault("%sschema_version %q is not one of ATIF-v1.0 to %s", at, t.SchemaVersion, SchemaVersion)
	}
	if t.Agent.Name == "" || t.Agent.Version == "" {
		fault("%sagent needs a name and a version", at)
	}
	if len(t.Steps) == 0 {
		fault("%sthere are no steps", at)
	}
	for i := range t.Steps {
		t.Steps[i].check(fmt.Sprintf("%ssteps[%d]", at, i), i+1, fault)
	}
	if t.Continued != nil {
		t.Continued.check(at+"continued_trajectory_ref", fault)
	}
	seen := map[string]bool{}
	for i := range t.Subagents {
		s := &t.Subagents[i]
		if s.TrajectoryID == "" || seen[s.TrajectoryID] {
			fault("%ssubagent_trajectories[%d] needs a trajectory_id of its own", at, i)
		}
		seen[s.TrajectoryID] = true
		s.check(fmt.Sprintf("%ssubagent_trajectories[%d].", at, i), fault)
	}
}

func (r *Ref) check(at string, fault func(string, ...any)) {
	if r.TrajectoryID == "" && r.TrajectoryPath == "" {
		fault("%s needs a trajectory_id or a trajectory_path", at)
	}
}

func (s *Step) check(at string, id int, fault func(string, ...any)) {
	if s.StepID != id {
		fault("%s.step_id is %d, not %d", at, s.StepID, id)
	}
	if s.Timestamp != "" {
		if _, err := time.Parse(time.RFC3339, s.Timestamp); err != nil {
			fault("%s.timestamp %q is no time", at, s.Timestamp)
		}
	}
	s.Message.check(at+".message", fault)
	own := s.ModelName != "" || s.Effort != nil || s.Reasoning != "" || s.ToolCalls != nil || s.Metrics != nil
	switch s.Source {
	case Agent:
		if s.LLMCallCount != nil && *s.LLMCallCount == 0 && (s.Metrics != nil || s.Reasoning != "") {
			fault("%s asked no model, so it has neither metrics nor reasoning_content", at)
		}
	case System, User:
		if own {
			fault("%s holds what only the agent's steps do", at)
		}
	default:
		fault("%s.source %q is none of system, user, agent", at, s.Source)
	}
	if s.LLMCallCount != nil && *s.LLMCallCount < 0 {
		fault("%s.llm_call_count is negative", at)
	}
	ids := map[string]bool{}
	for i, c := range s.ToolCalls {
		a := bytes.TrimSpace(c.Arguments)
		if c.ID == "" || c.Name == "" || len(a) == 0 || a[0] != '{' {
			fault("%s.tool_calls[%d] needs an id, a function_name, and an object as arguments", at, i)
		}
		ids[c.ID] = true
	}
	if s.Observation == nil {
		return
	}
	for i, r := range s.Observation.Results {
		if r.CallID != "" && !ids[r.CallID] {
			fault("%s.observation.results[%d] answers %q, which the step doesn't call", at, i, r.CallID)
		}
		if r.Content != nil {
			r.Content.check(fmt.Sprintf("%s.observation.results[%d].content", at, i), fault)
		}
		for j := range r.Sub {
			r.Sub[j].check(fmt.Sprintf("%s.observation.results[%d].subagent_trajectory_ref[%d]", at, i, j), fault)
		}
	}
}

var media = map[string]string{
	"image/jpeg": "image", "image/png": "image", "image/gif": "image", "image/webp": "image",
	"audio/wav": "audio", "audio/mpeg": "audio", "audio/mp4": "audio", "audio/aac": "audio", "audio/ogg": "audio", "audio/flac": "audio",
	"audio/webm": "audio", "audio/aiff": "audio",
}

func (c *Content) check(at string, fault func(string, ...any)) {
	for i, p := range c.Parts {
		switch {
		case p.Type == "text" && p.Source == nil:
		case (p.Type == "image" || p.Type == "audio") && p.Text == "" && p.Source != nil && p.Source.Path != "" && media[p.Source.Media] == p.Type:
		default:
			fault("%s[%d] is neither a text nor an image or a sound with its source", at, i)
		}
	}
}
