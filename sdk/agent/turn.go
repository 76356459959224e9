package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Turn is one task as the agent sees it. It may be used from several goroutines until the agent's function returns.
type Turn struct {
	TaskID    string
	ContextID string
	Message   wire.Message // what was asked; read only
	Settings  Settings     // as they stood when the turn began, like what follows
	Servers   []Server     // MCP servers, in the order in which they came; the peers' tools are the one named PeerServer
	Skills    []Skill      // that were added, in order

	task  *task
	store *store
	set   map[string]json.RawMessage
}

// Settings are those that every agent has.
type Settings struct {
	Name           string
	Description    string
	Role           string // whom MCP calls are made as; "" is no role
	TimeoutSeconds float64
}

// Timeout is how long the caller means to wait: the agent decides what to do about it.
func (s Settings) Timeout() time.Duration {
	return time.Duration(s.TimeoutSeconds * float64(time.Second))
}

// Text is what was asked, in its last text part.
func (t *Turn) Text() string { return t.Message.Text() }

// Progress tells whoever watches the task how it goes. metadata may be nil; it must encode as a JSON object.
func (t *Turn) Progress(text string, metadata any) error {
	var raw json.RawMessage
	if metadata != nil {
		var err error
		if raw, err = encode(metadata); err != nil || raw[0] != '{' {
			return errors.New("the metadata of a progress message must be a JSON object")
		}
	}
	m := t.task.reply([]wire.Part{wire.TextPart(text)})
	m.Metadata = raw
	t.store.progress(t.task, m, raw)
	return nil
}

// TrajectoryFormat names the form of what Record appends. It must come before the first Record.
func (t *Turn) TrajectoryFormat(name string) error { return t.store.format(t.task, name) }

// Record appends one event, which must encode as a JSON object, to the task's trajectory: callers can read it at once. Once the task has
// ended, events are dropped.
func (t *Turn) Record(event any) error {
	raw, err := encode(event)
	if err != nil {
		return fmt.Errorf("record an event: %w", err)
	}
	if raw[0] != '{' {
		return errors.New("record an event: it must be a JSON object")
	}
	return t.store.record(t.task, raw)
}

// Result is what a task came to. It needs at least one part, or a structured output.
type Result struct {
	Parts      []wire.Part
	Structured any // that was asked for; nil is none
	Usage      *wire.AgentUsage
	// Trajectory is the whole trajectory in a form of the agent's own, which replaces what was recorded in answers about this task; nil is none.
	Trajectory json.RawMessage
}

// Text is a result of one text.
func Text(s string) Result { return Result{Parts: []wire.Part{wire.TextPart(s)}} }

// Failure is an error that an agent declares: its task is failed, with this code and message.
type Failure struct {
	Code    string // a word for programs, e.g. "mail.refused"
	Message string // for people
	Infra   bool   // the agent could not run, through no doing of its own
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Fail is a failure of the agent's own: it tried, and didn't succeed.
func Fail(code, format string, args ...any) *Failure {
	return &Failure{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Unable is a failure of what the agent runs on: a model endpoint that is down, a tool server that is gone. It never counts as a score.
func Unable(code, format string, args ...any) *Failure {
	return &Failure{Code: code, Message: fmt.Sprintf(format, args...), Infra: true}
}

// Code of a task that crashed.
const codeCrash = "framework.unhandled_exception"

// parts are those of the message that a task ends with.
func (r *Result) parts() ([]wire.Part, error) {
	parts := append([]wire.Part(nil), r.Parts...)
	if r.Structured != nil {
		p, err := wire.DataPart(map[string]any{"structured_output": r.Structured})
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return nil, errors.New("the result has neither parts nor structured output")
	}
	return r.withUsage(parts)
}

func (r *Result) withUsage(parts []wire.Part) ([]wire.Part, error) {
	if r.Usage == nil {
		return parts, nil
	}
	p, err := wire.DataPart(map[string]any{"usage": r.Usage})
	return append(parts, p), err
}

func (f *Failure) parts() ([]wire.Part, error) {
	kind := wire.AgentError
	if f.Infra {
		kind = wire.InfraError
	}
	p, err := wire.DataPart(map[string]string{"error_type": kind, "error_code": f.Code, "error_message": f.Message})
	return []wire.Part{wire.TextPart(f.Message), p}, err
}

// turn is what the agent's function sees of a task.
func (a *Agent) turn(_ context.Context, t *task) *Turn {
	a.mu.Lock()
	set := make(map[string]json.RawMessage, len(a.settings))
	maps.Copy(set, a.settings)
	a.mu.Unlock()
	return &Turn{
		TaskID: t.id, ContextID: t.context, Message: t.message, Settings: a.base(set),
		Servers: a.serverList(), Skills: a.skills.list(), task: t, store: a.tasks, set: set,
	}
}
