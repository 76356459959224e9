package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Call is one execution of one step. What it sets is a diff; its methods may be called from several goroutines.
type Call struct {
	Run     string // id of the run
	Step    string // id of the step
	Attempt int    // from 1
	Trial   int    // which of the task's repeated runs this is, from 1
	Doc     Document
	Host    *Host
	Log     *slog.Logger // its lines are the step's
	// Seed is what stood for <key> in the task's strings, Models what people chose for the whole run, by role, and Agent the agent that they chose.
	Seed   map[string]string
	Models map[string]string
	Agent  string

	context json.RawMessage
	mu      sync.Mutex
	diff    []Op
}

// Context decodes the value at a path of the context document ("metadata/verifications") into v and tells whether there is one. It is the document as the
// step's ancestors left it, without what this call sets.
func (c *Call) Context(path string, v any) (bool, error) {
	at := c.context
	if path != "" {
		for name := range strings.SplitSeq(path, "/") {
			var m map[string]json.RawMessage
			if json.Unmarshal(at, &m) != nil {
				return false, nil
			}
			next, ok := m[Unescape(name)]
			if !ok {
				return false, nil
			}
			at = next
		}
	}
	return true, json.Unmarshal(at, v)
}

// Set replaces the value at path, Append adds one to the list at path, Unset removes what is there. See Path for names that people chose.
func (c *Call) Set(path string, v any) error    { return c.add(OpSet, path, v) }
func (c *Call) Append(path string, v any) error { return c.add(OpAppend, path, v) }
func (c *Call) Unset(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diff = append(c.diff, Op{Op: OpUnset, Path: path})
}

func (c *Call) add(op, path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diff = append(c.diff, Op{op, path, b})
	return nil
}

// Score leaves the step's score, from 0 to 1, with details that a report shows.
func (c *Call) Score(score float64, details map[string]any) error {
	var d struct {
		Verifier string `json:"verifier_id"`
	}
	_ = json.Unmarshal(c.Doc, &d)
	if d.Verifier == "" {
		d.Verifier = c.Step
	}
	m := map[string]any{}
	maps.Copy(m, details)
	m["score"] = score
	return c.Set(Path("metadata", "verifications", d.Verifier), m)
}

func (c *Call) ops() []Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Op{}, c.diff...)
}

// Path joins names into the path of a value. Names may hold any character.
func Path(names ...string) string {
	escaped := make([]string, len(names))
	for i, n := range names {
		escaped[i] = strings.NewReplacer("%", "%25", "/", "%2F").Replace(n)
	}
	return strings.Join(escaped, "/")
}

// Unescape is the name that Path was given.
func Unescape(segment string) string {
	if !strings.Contains(segment, "%") {
		return segment
	}
	return strings.NewReplacer("%2F", "/", "%25", "%").Replace(segment)
}

// fault is a failure with what is known of it.
type fault struct {
	err error
	Failure
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// Fail makes a failure of a type, the word that records show ("LobbyError").
func Fail(typ, format string, args ...any) error {
	return &fault{fmt.Errorf(format, args...), Failure{Type: typ}}
}

// Infra marks err as a fault of the machinery, not of the task or the agent: the run has no score then. nil stays nil.
func Infra(err error) error { return mark(err, func(f *Failure) { f.Infra = true }) }

// Keep marks the failure of a step whose diff counts all the same. nil stays nil.
func Keep(err error) error { return mark(err, func(f *Failure) { f.Keep = true }) }

func mark(err error, set func(*Failure)) error {
	if err == nil {
		return nil
	}
	out := &fault{err: err}
	if f, ok := errors.AsType[*fault](err); ok {
		out.Failure = f.Failure
	}
	set(&out.Failure)
	return out
}

// answer is a step's error as the host reads it.
func (c *Call) answer(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return rpc.Errorf(rpc.CodeCancelled, "cancelled")
	}
	f := Failure{Type: "Error"}
	if e, ok := errors.AsType[*fault](err); ok {
		f = e.Failure
	}
	if f.Keep {
		f.Diff = c.ops()
	}
	data, merr := json.Marshal(f)
	if merr != nil {
		return merr
	}
	return &rpc.Error{Code: CodeFailed, Message: err.Error(), Data: data}
}
