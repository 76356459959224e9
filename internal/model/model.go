// Package model talks to language models: one request, one answer, with tools, streaming, retries and the count of what was spent.
//
// Words: an endpoint is a server that speaks a dialect (OpenAI's chat completions or Anthropic's messages); a model is a name that it knows.
// Client is the one that goes over the network; Scripted plays a written dialogue and needs none. Nothing here knows agents, tasks or tools'
// servers, and no key is ever part of an error.
package model

import (
	"context"
	"encoding/json"
	"time"
)

// Model answers a conversation with one more message. It may be used from several goroutines.
type Model interface {
	// Generate answers r. A failure is an *Error.
	Generate(ctx context.Context, r *Request) (*Response, error)
}

// Roles of a message.
const (
	User      = "user"
	Assistant = "assistant"
	ToolRole  = "tool" // the result of one call
)

// Message is one turn of a conversation.
type Message struct {
	Role  string     `json:"role"`
	Parts []Part     `json:"parts,omitempty"`
	Calls []ToolCall `json:"calls,omitempty"` // of the assistant
	// CallID names the call that a tool message answers, Error that it failed.
	CallID string `json:"call_id,omitempty"`
	Error  bool   `json:"error,omitempty"`
	// Reasoning is what the model thought aloud; Opaque is what its endpoint wants to see again, as it sent it.
	Reasoning string          `json:"reasoning,omitempty"`
	Opaque    json.RawMessage `json:"opaque,omitempty"`
}

// Text is a message of one text part.
func Text(role, text string) Message { return Message{Role: role, Parts: []Part{{Text: text}}} }

// Text joins the text parts.
func (m *Message) Text() string {
	if len(m.Parts) == 1 {
		return m.Parts[0].Text
	}
	var s []byte
	for _, p := range m.Parts {
		s = append(s, p.Text...)
	}
	return string(s)
}

// Part is text, or an image when Media is set.
type Part struct {
	Text  string `json:"text,omitempty"`
	Media string `json:"media,omitempty"` // image/png, image/jpeg, image/gif, image/webp
	Data  []byte `json:"data,omitempty"`
}

// Tool is one that the model may call.
type Tool struct {
	Name        string          `json:"name"` // ^[a-zA-Z0-9_-]{1,64}$
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"` // of an object
}

// ToolCall is one call that the model asks for.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Args is a JSON object. It is "{}" when the model wrote something else, which Malformed then holds.
	Args      json.RawMessage `json:"args"`
	Malformed string          `json:"malformed,omitempty"`
}

// Request is what a model is asked. Zero values leave the choice to the endpoint.
type Request struct {
	Model    string
	System   string
	Messages []Message
	Tools    []Tool

	MaxTokens   int
	Temperature *float64
	Effort      string // of reasoning: low, medium, high
	MaxThinking int    // tokens
	// Schema is what the answer's text shall be JSON of; nil: free text.
	Schema json.RawMessage
	// Params are more members of the request's body, as the endpoint names them.
	Params map[string]json.RawMessage
	// Variant picks one of the dialogues of a scripted model: the attempt, from 0. Endpoints don't see it.
	Variant int
}

// Why a model stopped.
const (
	StopEnd     = "end"     // it was done
	StopTools   = "tools"   // it waits for tool results
	StopLength  = "length"  // the output limit
	StopRefusal = "refusal" // it, or a filter, would not answer
)

// Response is a model's answer.
type Response struct {
	Message Message
	Stop    string
	Usage   Usage
	Model   string // as the endpoint names it
	Tries   int    // requests that were made, at least 1
	Took    time.Duration
}

// Usage counts tokens. Input includes what came from a cache; Output includes reasoning.
type Usage struct {
	Input       int64 `json:"input_tokens"`
	Cached      int64 `json:"cached_tokens,omitempty"`
	CacheWrites int64 `json:"cache_write_tokens,omitempty"`
	Output      int64 `json:"output_tokens"`
	// USD is what it cost; Priced tells whether it is known.
	USD    float64 `json:"cost_usd,omitempty"`
	Priced bool    `json:"priced,omitempty"`
}

// Add sums up. A sum is priced when all that had tokens was.
func (u Usage) Add(v Usage) Usage {
	none := func(u Usage) bool { return u.Input == 0 && u.Output == 0 }
	priced := u.Priced && v.Priced || u.Priced && none(v) || v.Priced && none(u)
	return Usage{u.Input + v.Input, u.Cached + v.Cached, u.CacheWrites + v.CacheWrites, u.Output + v.Output, u.USD + v.USD, priced}
}

// Price is what a million tokens cost in USD.
type Price struct {
	Input  float64
	Output float64
	Cached float64 // 0: as Input
}

// Of is what u costs.
func (p Price) Of(u Usage) float64 {
	cached := p.Cached
	if cached == 0 {
		cached = p.Input
	}
	return (float64(u.Input-u.Cached)*p.Input + float64(u.Cached)*cached + float64(u.Output)*p.Output) / 1e6
}
