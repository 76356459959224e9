package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Fixture says how to make a server do what a row is about. Everything may be left out.
type Fixture struct {
	// Add is the params of a data/add that loads, and Added a text that the answer of data/get holds after it and not after a reset.
	Add   json.RawMessage `json:"add,omitempty"`
	Added string          `json:"added,omitempty"`
	// Refused is the params of a data/add that the environment's own code refuses.
	Refused json.RawMessage `json:"refused,omitempty"`

	// Tools: one that answers, one that fails with a code, one that breaks, one whose arguments are wrong, one that is hidden, one that tells
	// in a JSON text which role and session called it.
	OKTool      *ToolCall `json:"ok_tool,omitempty"`
	CodedTool   *ToolCall `json:"coded_tool,omitempty"`
	CrashTool   *ToolCall `json:"crash_tool,omitempty"`
	BadTool     *ToolCall `json:"bad_tool,omitempty"`
	HiddenTool  *ToolCall `json:"hidden_tool,omitempty"`
	ContextTool *ToolCall `json:"context_tool,omitempty"`

	// Extension calls: one that answers, one that answers null, one that fails with a code, one that breaks, and some that are wrong.
	OKExtension    *ExtensionCall  `json:"ok_extension,omitempty"`
	NullExtension  *ExtensionCall  `json:"null_extension,omitempty"`
	CodedExtension *ExtensionCall  `json:"coded_extension,omitempty"`
	CrashExtension *ExtensionCall  `json:"crash_extension,omitempty"`
	BadExtensions  []ExtensionCall `json:"bad_extensions,omitempty"`

	// Of agents: a text that is answered soon ("hello" unless set), one that keeps the agent busy, one that it declares failed, one that makes
	// it crash with Secret in the exception, and a setting that is a secret.
	Prompt         string `json:"prompt,omitempty"`
	SlowPrompt     string `json:"slow_prompt,omitempty"`
	FailingPrompt  string `json:"failing_prompt,omitempty"`
	CrashingPrompt string `json:"crashing_prompt,omitempty"`
	Secret         string `json:"secret,omitempty"`
	SecretField    string `json:"secret_field,omitempty"`
}

// ToolCall is a tool and its arguments.
type ToolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// ExtensionCall is a call of an extension's method. Params is the body, or an object whose members become a GET's query.
type ExtensionCall struct {
	URI    string          `json:"uri"`
	Method string          `json:"method,omitempty"` // "" is the only one
	Params json.RawMessage `json:"params,omitempty"`
	Before json.RawMessage `json:"before,omitempty"` // params of a call that is made first
	// Of a coded failure: what must be told.
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Applied   string `json:"applied,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// ParseFixture reads a fixture's file.
func ParseFixture(b []byte) (Fixture, error) {
	var f Fixture
	if err := strict(b, &f); err != nil {
		return f, fmt.Errorf("read the fixture: %w", err)
	}
	return f, nil
}

// Expectations are rows that a server is known to fail, and why.
type Expectations map[string]string

// ParseExpectations reads a file of expected failures: {"failures":[{"row":"E13","reason":"…"}]}.
func ParseExpectations(b []byte) (Expectations, error) {
	var in struct {
		Failures []struct {
			Row    string `json:"row"`
			Reason string `json:"reason"`
		} `json:"failures"`
	}
	if err := strict(b, &in); err != nil {
		return nil, fmt.Errorf("read the expected failures: %w", err)
	}
	out := Expectations{}
	for i, f := range in.Failures {
		switch {
		case f.Row == "":
			return nil, fmt.Errorf("read the expected failures: failures[%d] names no row", i)
		case strings.TrimSpace(f.Reason) == "":
			return nil, fmt.Errorf("read the expected failures: %s has no reason", f.Row)
		case out[f.Row] != "":
			return nil, fmt.Errorf("read the expected failures: %s is there twice", f.Row)
		}
		out[f.Row] = f.Reason
	}
	return out, nil
}

func (e Expectations) check(rows []row) error {
	var bad []string
	for id := range e {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.id == id }) {
			bad = append(bad, id)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("the expected failures name rows that don't exist: %s", strings.Join(bad, ", "))
}

func strict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}
