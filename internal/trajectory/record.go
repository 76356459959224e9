package trajectory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Kinds of events.
const (
	Said     = "said"     // somebody other than the agent said Text: Source is system or user
	Answered = "answered" // a model answered the agent
	Returned = "returned" // a tool answered Call
)

// Event is one line of a record.
type Event struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Source string    `json:"source,omitempty"` // of Said
	Turn   int       `json:"turn,omitempty"`   // of the conversation, from 1

	Text   string  `json:"text,omitempty"`
	Images []Image `json:"images,omitempty"`

	// Of Answered.
	Model     string  `json:"model,omitempty"`
	Reasoning string  `json:"reasoning,omitempty"`
	Calls     []Call  `json:"calls,omitempty"`
	Usage     *Usage  `json:"usage,omitempty"`
	Tries     int     `json:"tries,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`

	// Of Returned.
	Call  string `json:"call,omitempty"` // its id
	Error bool   `json:"error,omitempty"`
	Spill *Spill `json:"spill,omitempty"`
}

// Call is a call that a model asked for. Malformed is what it wrote instead of an object.
type Call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Malformed string          `json:"malformed,omitempty"`
}

// Usage is what an answer cost. USD is nil where nobody knows.
type Usage struct {
	Input  int64    `json:"input"`
	Cached int64    `json:"cached,omitempty"`
	Output int64    `json:"output"`
	USD    *float64 `json:"usd,omitempty"`
}

// Image is a picture kept beside the record.
type Image struct {
	Media string `json:"media"`
	Path  string `json:"path"` // relative to the record
}

// Spill tells where the whole of a result lies of which Text holds head and tail.
type Spill struct {
	Handle string `json:"handle"`
	Bytes  int64  `json:"bytes"`
}

// Fold makes the document of events, which are in order; agent and session say whose they are. It always is valid: without events it holds one
// empty step of the system. A result that answers no call of the model's last message is kept as what the system observed.
func Fold(agent AgentInfo, session string, events []Event) *Trajectory {
	t := &Trajectory{SchemaVersion: SchemaVersion, SessionID: session, Agent: agent}
	var sums Usage
	priced := true
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Said:
			source := e.Source
			if source != System && source != User {
				source = System
			}
			t.step(e, Step{Source: source})
		case Answered:
			t.step(e, answered(e))
			if u := e.Usage; u != nil {
				sums.Input, sums.Cached, sums.Output = sums.Input+u.Input, sums.Cached+u.Cached, sums.Output+u.Output
				if priced = priced && u.USD != nil; priced {
					sums.USD = new(add(sums.USD, *u.USD))
				}
			}
		case Returned:
			t.returned(e)
		}
	}
	if len(t.Steps) == 0 {
		t.Steps = []Step{{StepID: 1, Source: System}}
	}
	t.FinalMetrics = &FinalMetrics{PromptTokens: &sums.Input, CompletionTokens: &sums.Output, Steps: new(len(t.Steps))}
	if sums.Cached > 0 {
		t.FinalMetrics.CachedTokens = &sums.Cached
	}
	if priced {
		t.FinalMetrics.CostUSD = sums.USD
	}
	return t
}

func add(sum *float64, v float64) float64 {
	if sum == nil {
		return v
	}
	return *sum + v
}

func (t *Trajectory) step(e *Event, s Step) {
	s.StepID = len(t.Steps) + 1
	if !e.At.IsZero() {
		s.Timestamp = e.At.UTC().Format(time.RFC3339Nano)
	}
	s.Message = content(e)
	t.Steps = append(t.Steps, s)
}

func content(e *Event) Content {
	if len(e.Images) == 0 {
		return Content{Text: e.Text}
	}
	c := Content{Parts: []Part{}}
	if e.Text != "" {
		c.Parts = append(c.Parts, Part{Type: "text", Text: e.Text})
	}
	for _, i := range e.Images {
		if media[i.Media] == "image" && i.Path != "" {
			c.Parts = append(c.Parts, Part{Type: "image", Source: &Source{Media: i.Media, Path: i.Path}})
		}
	}
	return c
}

func answered(e *Event) Step {
	s := Step{Source: Agent, ModelName: e.Model, Reasoning: e.Reasoning, LLMCallCount: new(max(1, e.Tries))}
	if u := e.Usage; u != nil {
		s.Metrics = &Metrics{PromptTokens: &u.Input, CompletionTokens: &u.Output, CostUSD: u.USD}
		if u.Cached > 0 {
			s.Metrics.CachedTokens = &u.Cached
		}
	}
	for _, c := range e.Calls {
		call := ToolCall{ID: c.ID, Name: c.Name, Arguments: c.Arguments}
		if len(c.Arguments) == 0 || c.Arguments[0] != '{' {
			call.Arguments = json.RawMessage("{}")
		}
		if c.Malformed != "" {
			call.Extra = extra(map[string]any{"malformed_arguments": c.Malformed})
		}
		if call.ID != "" && call.Name != "" {
			s.ToolCalls = append(s.ToolCalls, call)
		}
	}
	return s
}

func (t *Trajectory) returned(e *Event) {
	r := Result{Content: new(content(e))}
	x := map[string]any{}
	if e.Error {
		x["error"] = true
	}
	if e.Spill != nil {
		x["handle"], x["bytes"] = e.Spill.Handle, e.Spill.Bytes
	}
	for i := len(t.Steps) - 1; i >= 0; i-- { // the last message of the agent; results of other calls may lie between
		s := &t.Steps[i]
		if s.Source != Agent {
			continue
		}
		for _, c := range s.ToolCalls {
			if c.ID == e.Call {
				r.CallID, r.Extra = e.Call, extra(x)
				s.observe(r)
				return
			}
		}
		break
	}
	x["answers"] = e.Call
	r.Extra = extra(x)
	t.step(&Event{At: e.At}, Step{Source: System})
	t.Steps[len(t.Steps)-1].observe(r)
}

func (s *Step) observe(r Result) {
	if s.Observation == nil {
		s.Observation = &Observation{}
	}
	s.Observation.Results = append(s.Observation.Results, r)
}

// extra is x as JSON; nothing for an empty one.
func extra(x map[string]any) json.RawMessage {
	if len(x) == 0 {
		return nil
	}
	b, err := json.Marshal(x)
	if err != nil {
		panic(err) // texts, numbers and bools alone
	}
	return b
}

// ReadEvents reads a record's lines. A last line without its end is left out: its writer was killed. torn tells so.
func ReadEvents(b []byte) (events []Event, torn bool, err error) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return events, true, nil
		}
		line := b[:i]
		b = b[i+1:]
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, false, fmt.Errorf("line %d of the record can't be read: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
	return events, false, nil
}
