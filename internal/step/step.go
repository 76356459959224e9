// Package step holds the step types as data (Kind), what executes them (Executor), and the context document that steps share.
//
// Kinds and executors are separate sets: every kind is known from the first day, an executor may be missing, and a task that
// needs it is then refused before anything runs.
package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
)

// Kind is one step type: its fields and rules, no code that acts. Use it by pointer.
type Kind struct {
	Name   string
	Doc    string     // one line
	Fields doc.Schema // strict; Schema adds the fields that every step has
	Refs   []Ref
	// Scores tells that its steps leave a score, so that they can run again on what a run has left.
	Scores bool
	Check  func(doc.Node, *diag.List) // rules across fields, run when every field has its type; may be nil

	once   sync.Once
	schema *doc.Schema
}

// Ref is a field that names a stored entity.
type Ref struct {
	// Path leads from the step to a string: "artifact_id", "artifacts[].id", "snapshot_config.env_id".
	// "of[]*" stands for any number, none included, of "of[]" in a row: "triggers[].when.of[]*.env_id".
	Path    string
	Kind    ref.Kind // what it names
	Type    string   // the type it must have; "" for any
	Version string   // sibling field that pins a version; "" for none
	// Prefix stands before the name; a string without it is no reference. "" for none.
	Prefix string
	Out    bool // the step writes it
	// Of an output whose field is absent: its name is the last segment of field From followed by Suffix.
	From, Suffix string
}

// Executor does what one kind asks. It is built once and used by many runs at once.
type Executor interface {
	Run(ctx context.Context, c *Call) error
}

// Preflighter is an Executor that can tell before anything runs why its step can't.
// Where in what it finds is the field, without the step.
type Preflighter interface {
	Preflight(ctx context.Context, d doc.Node, p Plan) diag.List
}

// Plan is what is known of a run before it starts, beside its steps.
type Plan struct {
	Sandbox   []string // sandbox providers to try instead of those that steps name
	Isolation string   // the least level that must hold
	// Models are what people chose for the whole run, by role.
	Models map[string]string
	// Fixed are the models by role that people chose for single steps, by step: they win over Models.
	Fixed map[string]map[string]string
	// Agent takes the place of the agents that deploy steps name; "" leaves it to them.
	Agent string
	// Type is the type of an entity, stored or about to be written; "" when it is not known. Version 0 is the latest.
	Type func(ctx context.Context, k ref.Kind, id string, version int) string
	// Written is an entity that is stored before the first step starts, in its latest version; false when nothing of that id is. It may be nil.
	Written func(k ref.Kind, id string) (Written, bool)
}

// Written is an entity that a run is about to store.
type Written struct {
	Type string
	// Body is its document as JSON, without its files; in a reference of it, version 0 stands for what is stored with it.
	Body []byte
	// Paths are its files, and Open reads one of them.
	Paths []string
	Open  func(path string) (io.ReadCloser, error)
}

// Call is one execution of one step.
type Call struct {
	Run     string
	Step    string
	Attempt int
	Trial   int      // which of the task's repeated runs this is, from 1
	Doc     doc.Node // the step with defaults filled in and references as ids
	State   View     // the context document as the step's ancestors left it
	Out     *Diff    // committed with the step's end, dropped on failure
	Log     *slog.Logger
	// Seed is what stood for <key> in the task's strings, and Models what people chose for the whole run, by role. Both may be nil.
	Seed   map[string]string
	Models map[string]string
	// Agent is the agent that people chose for the whole run in place of those that deploy steps name; "" for none.
	Agent string
	// Decisions are what people decided about this step, oldest first, those made before it started included. It is never closed; nil blocks.
	Decisions <-chan Decision
	// OnSpend is told of costs as they arise; Spent calls it. It may be nil.
	OnSpend func(Cost)
}

// Spent books a cost of the step at once, so that a run that is killed has it on record.
func (c *Call) Spent(cost Cost) {
	if c.OnSpend != nil {
		c.OnSpend(cost)
	}
}

// Cost is what was spent on models.
type Cost struct {
	USD          float64 `json:"usd"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
}

// Decision is what a person decided about a step that waits for one.
type Decision struct {
	Choice  string    `json:"choice"` // Continue, Abort, Reply
	Comment string    `json:"comment,omitempty"`
	By      string    `json:"by,omitempty"` // who, as they call themselves
	At      time.Time `json:"at"`
}

// Choices of a Decision.
const (
	Continue = "continue"
	Abort    = "abort"
	Reply    = "reply" // of a person who plays an agent; Comment is what they say
)

// Boxes opens the sandboxes of a run by the name that its deploy step gave. The handle is shared: callers don't close it.
type Boxes interface {
	Box(ctx context.Context, run, name string) (guest.Box, error)
}

type infraError struct{ err error }

func (e infraError) Error() string { return e.err.Error() }
func (e infraError) Unwrap() error { return e.err }

// Infra marks err as a fault of the machinery, not of the task: the run becomes infra_failed and has no score. nil stays nil.
func Infra(err error) error {
	if err == nil {
		return nil
	}
	return infraError{err}
}

// IsInfra tells whether err is a fault of the machinery. A box that is gone always is.
func IsInfra(err error) bool {
	var i infraError
	return errors.As(err, &i) || errors.Is(err, guest.ErrGone)
}

// Lasts tells whether err holds one that every later run will meet too, until a person does something about it: such errors have a method Lasts.
func Lasts(err error) bool {
	var l interface{ Lasts() bool }
	return errors.As(err, &l) && l.Lasts()
}

type keptError struct{ err error }

func (e keptError) Error() string { return e.err.Error() }
func (e keptError) Unwrap() error { return e.err }

// Keep marks the failure of a step whose Out counts all the same, such as an agent's reply that is a failure. nil stays nil.
func Keep(err error) error {
	if err == nil {
		return nil
	}
	return keptError{err}
}

// IsKept tells whether what the failed step left counts.
func IsKept(err error) bool {
	var k keptError
	return errors.As(err, &k)
}

// Error is a step's failure with the type word that records and summaries show ("TimeoutError: …").
type Error struct {
	Type string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes a step failure of a type.
func Errorf(typ, format string, args ...any) error {
	return &Error{typ, fmt.Errorf(format, args...)}
}

// Halted is the error of a step that its context ended while it waited for something: what that said last is told beside the end.
type Halted struct {
	Err   error  // the context's
	State string // of what was waited for
}

func (e *Halted) Error() string { return e.Err.Error() + "; " + e.State }
func (e *Halted) Unwrap() error { return e.Err }

// Ended is the error of a step whose context has ended, made of the last error that it met: with what that tells of the end, when it is a Halted.
func Ended(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*Halted](err); ok {
		return err
	}
	return ctx.Err()
}
