package model

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// anthropic is the messages protocol.
type anthropic struct{}

// defaultMaxTokens is sent where nobody set a limit: this protocol needs one.
const defaultMaxTokens = 16384

func (anthropic) path() string { return "/messages" }

func (anthropic) headers(h http.Header, key string) {
	h.Set("Anthropic-Version", "2023-06-01")
	if key != "" {
		h.Set("X-Api-Key", key)
	}
}

func (anthropic) body(e *Endpoint, r *Request) ([]byte, error) {
	limit := r.MaxTokens
	if limit <= 0 {
		limit = defaultMaxTokens
	}
	b := map[string]any{"model": r.Model, "messages": anMessages(r.Messages), "stream": true}
	for k, v := range merged(e.Params, r.Params) {
		b[k] = v
	}
	if r.MaxThinking > 0 {
		b["thinking"] = map[string]any{"type": "enabled", "budget_tokens": r.MaxThinking}
		limit = max(limit, r.MaxThinking+1024) // what it thinks counts
	}
	if _, ok := b["max_tokens"]; !ok || r.MaxTokens > 0 {
		b["max_tokens"] = limit
	}
	system := r.System
	if r.Schema != nil {
		if system != "" {
			system += "\n\n"
		}
		system += "Answer with JSON of this schema, and nothing else:\n" + string(r.Schema)
	}
	if system != "" {
		b["system"] = system
	}
	if r.Temperature != nil {
		b["temperature"] = *r.Temperature
	}
	if r.Effort != "" {
		b["output_config"] = map[string]any{"effort": r.Effort}
	}
	if len(r.Tools) > 0 {
		var tools []any
		for _, t := range r.Tools {
			tools = append(tools, map[string]any{"name": t.Name, "description": t.Description, "input_schema": Lower(t.Schema, r.Model)})
		}
		b["tools"] = tools
	}
	return json.Marshal(b)
}

type anMessage struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

// anMessages joins neighbours of one role: tool results are what the user says.
func anMessages(ms []Message) []anMessage {
	var out []anMessage
	for i := range ms {
		m := &ms[i]
		role := m.Role
		if role == ToolRole {
			role = User
		}
		blocks := anBlocks(m)
		if len(blocks) == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Role == role {
			out[n-1].Content = append(out[n-1].Content, blocks...)
			continue
		}
		out = append(out, anMessage{role, blocks})
	}
	return out
}

func anBlocks(m *Message) []any {
	var out []any
	if m.Role == Assistant && len(m.Opaque) > 0 {
		var thinking []json.RawMessage
		if json.Unmarshal(m.Opaque, &thinking) == nil {
			for _, t := range thinking {
				out = append(out, t)
			}
		}
	}
	parts := anParts(m.Parts)
	if m.Role == ToolRole {
		return append(out, map[string]any{"type": "tool_result", "tool_use_id": m.CallID, "is_error": m.Error, "content": parts})
	}
	out = append(out, parts...)
	for _, c := range m.Calls {
		out = append(out, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.Args})
	}
	return out
}

// anParts leaves out empty texts, which the protocol refuses.
func anParts(parts []Part) []any {
	out := []any{}
	for _, p := range parts {
		switch {
		case p.Media != "":
			out = append(out, map[string]any{"type": "image", "source": map[string]any{
				"type": "base64", "media_type": p.Media, "data": base64.StdEncoding.EncodeToString(p.Data),
			}})
		case p.Text != "":
			out = append(out, map[string]any{"type": "text", "text": p.Text})
		}
	}
	return out
}

type anUsage struct {
	Input  *int64 `json:"input_tokens"`
	Read   *int64 `json:"cache_read_input_tokens"`
	Write  *int64 `json:"cache_creation_input_tokens"`
	Output *int64 `json:"output_tokens"`
}

type anBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`

	args string // pieces of Input
}

type anEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message *struct {
		Model string  `json:"model"`
		Usage anUsage `json:"usage"`
	} `json:"message"`
	Block *anBlock `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *anUsage        `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// anAnswer gathers an answer from its pieces.
type anAnswer struct {
	model  string
	blocks []anBlock
	usage  struct{ input, read, write, output int64 }
	stop   string
	ended  bool
}

func (anthropic) stream(r io.Reader) (*Response, error) {
	var a anAnswer
	err := events(r, func(_ string, data []byte) error {
		var e anEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return &Error{Kind: Malformed, Err: errors.New("an event of the stream is no JSON of a message")}
		}
		return a.add(&e)
	})
	if err != nil {
		return nil, err
	}
	if !a.ended || a.stop == "" {
		return nil, &Error{Kind: Cut, Message: "the answer ended before it was complete"}
	}
	return a.end()
}

func (a *anAnswer) add(e *anEvent) error {
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			a.model = e.Message.Model
			a.count(&e.Message.Usage)
		}
	case "content_block_start":
		if e.Block == nil || e.Index != len(a.blocks) || e.Index >= maxCalls {
			return &Error{Kind: Malformed, Message: "a block of the answer is out of order"}
		}
		a.blocks = append(a.blocks, *e.Block)
	case "content_block_delta":
		if e.Index < 0 || e.Index >= len(a.blocks) {
			return &Error{Kind: Malformed, Message: "a piece of the answer belongs to no block"}
		}
		b := &a.blocks[e.Index]
		b.Text += e.Delta.Text
		b.Thinking += e.Delta.Thinking
		b.Signature += e.Delta.Signature
		b.args += e.Delta.PartialJSON
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.stop = e.Delta.StopReason
		}
		a.count(e.Usage)
	case "message_stop":
		a.ended = true
	case "error":
		return streamError(e.Error)
	}
	return nil
}

func (a *anAnswer) count(u *anUsage) {
	if u == nil {
		return
	}
	for _, f := range []struct{ from, to *int64 }{{u.Input, &a.usage.input}, {u.Read, &a.usage.read}, {u.Write, &a.usage.write}, {u.Output, &a.usage.output}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
}

func (anthropic) whole(body []byte) (*Response, error) {
	var m struct {
		Model      string    `json:"model"`
		Content    []anBlock `json:"content"`
		StopReason string    `json:"stop_reason"`
		Usage      anUsage   `json:"usage"`
	}
	if err := json.Unmarshal(body, &m); err != nil || m.StopReason == "" {
		return nil, &Error{Kind: Malformed, Err: errors.New("the answer is no JSON of a message")}
	}
	a := anAnswer{model: m.Model, blocks: m.Content, stop: m.StopReason}
	a.count(&m.Usage)
	return a.end()
}

func (a *anAnswer) end() (*Response, error) {
	u := a.usage
	res := &Response{Model: a.model, Stop: StopEnd, Usage: Usage{Input: u.input + u.read + u.write, Cached: u.read, CacheWrites: u.write, Output: u.output}}
	m := &res.Message
	m.Role = Assistant
	var opaque []json.RawMessage
	for i := range a.blocks {
		b := &a.blocks[i]
		switch b.Type {
		case "text":
			m.Parts = append(m.Parts, Part{Text: b.Text})
		case "thinking":
			m.Reasoning += b.Thinking
			opaque = append(opaque, raw(map[string]string{"type": b.Type, "thinking": b.Thinking, "signature": b.Signature}))
		case "redacted_thinking":
			opaque = append(opaque, raw(map[string]string{"type": b.Type, "data": b.Data}))
		case "tool_use":
			args := b.args
			if args == "" {
				args = string(b.Input)
			}
			m.Calls = append(m.Calls, newCall(b.ID, b.Name, args, len(m.Calls)))
		}
	}
	if opaque != nil {
		m.Opaque = raw(opaque)
	}
	switch a.stop {
	case "tool_use":
		res.Stop = StopTools
	case "max_tokens", "model_context_window_exceeded":
		res.Stop = StopLength
	case "refusal":
		res.Stop = StopRefusal
	}
	return res, empty(res)
}

// raw is v, which holds nothing but texts, as JSON.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
