package model

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
)

// openAI is the chat completions protocol.
type openAI struct{ ownHost bool }

func (openAI) path() string { return "/chat/completions" }

func (openAI) headers(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

type oaMessage struct {
	Role       string   `json:"role"`
	Content    any      `json:"content"`
	ToolCalls  []oaCall `json:"tool_calls,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
}

type oaCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (d openAI) body(e *Endpoint, r *Request) ([]byte, error) {
	b := map[string]any{
		"model": r.Model, "messages": oaMessages(r), "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	}
	for k, v := range merged(e.Params, r.Params) {
		b[k] = v
	}
	if r.MaxTokens > 0 {
		name := "max_tokens"
		if d.ownHost {
			name = "max_completion_tokens" // its reasoning models refuse the old name
		}
		b[name] = r.MaxTokens
	}
	if r.Temperature != nil {
		b["temperature"] = *r.Temperature
	}
	if r.Effort != "" {
		b["reasoning_effort"] = r.Effort
	}
	if r.Schema != nil {
		b["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": r.Schema}}
	}
	if len(r.Tools) > 0 {
		var tools []any
		for _, t := range r.Tools {
			tools = append(tools, map[string]any{"type": "function", "function": map[string]any{
				"name": t.Name, "description": t.Description, "parameters": Lower(t.Schema, r.Model),
			}})
		}
		b["tools"] = tools
	}
	return json.Marshal(b)
}

// merged lays the request's own members over the endpoint's.
func merged(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(a)
	if out == nil {
		return b
	}
	maps.Copy(out, b)
	return out
}

func oaMessages(r *Request) []oaMessage {
	var out []oaMessage
	if r.System != "" {
		out = append(out, oaMessage{Role: "system", Content: r.System})
	}
	var images []Part // of tool results, which can't hold any: shown by the user after the last of them
	flush := func() {
		if len(images) > 0 {
			out = append(out, oaMessage{Role: User, Content: oaParts(append([]Part{{Text: "The images of the results above:"}}, images...))})
			images = nil
		}
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role != ToolRole {
			flush()
		}
		o := oaMessage{Role: m.Role, Content: oaContent(m)}
		switch m.Role {
		case ToolRole:
			o.ToolCallID, o.Content = m.CallID, m.Text()
			for _, p := range m.Parts {
				if p.Media != "" {
					images = append(images, p)
				}
			}
		case Assistant:
			for _, c := range m.Calls {
				oc := oaCall{ID: c.ID, Type: "function"}
				oc.Function.Name, oc.Function.Arguments = c.Name, string(c.Args)
				o.ToolCalls = append(o.ToolCalls, oc)
			}
			if len(m.Parts) == 0 {
				o.Content = nil
			}
		}
		out = append(out, o)
	}
	flush()
	return out
}

func oaContent(m *Message) any {
	for _, p := range m.Parts {
		if p.Media != "" {
			return oaParts(m.Parts)
		}
	}
	return m.Text()
}

func oaParts(parts []Part) []any {
	var out []any
	for _, p := range parts {
		if p.Media == "" {
			out = append(out, map[string]any{"type": "text", "text": p.Text})
			continue
		}
		u := "data:" + p.Media + ";base64," + base64.StdEncoding.EncodeToString(p.Data)
		out = append(out, map[string]any{"type": "image_url", "image_url": map[string]any{"url": u}})
	}
	return out
}

type oaChunk struct {
	Model   string `json:"model"`
	Choices []struct {
		Delta        oaDelta `json:"delta"`
		Message      oaDelta `json:"message"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		Details          struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Cost *float64 `json:"cost"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type oaDelta struct {
	Content          *string  `json:"content"`
	Refusal          *string  `json:"refusal"`
	ReasoningContent string   `json:"reasoning_content"`
	Reasoning        string   `json:"reasoning"`
	ToolCalls        []oaCall `json:"tool_calls"`
}

// oaAnswer gathers an answer from its pieces.
type oaAnswer struct {
	res    Response
	text   []byte
	think  []byte
	calls  []oaCall
	finish string
	done   bool
}

func (openAI) stream(r io.Reader) (*Response, error) {
	var a oaAnswer
	err := events(r, func(_ string, data []byte) error {
		if string(data) == "[DONE]" {
			a.done = true
			return nil
		}
		var c oaChunk
		if err := json.Unmarshal(data, &c); err != nil {
			return &Error{Kind: Malformed, Err: errors.New("an event of the stream is no JSON of a completion")}
		}
		return a.add(&c, false)
	})
	if err != nil {
		return nil, err
	}
	return a.end()
}

func (openAI) whole(body []byte) (*Response, error) {
	var c oaChunk
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, &Error{Kind: Malformed, Err: errors.New("the answer is no JSON of a completion")}
	}
	var a oaAnswer
	if err := a.add(&c, true); err != nil {
		return nil, err
	}
	return a.end()
}

func (a *oaAnswer) add(c *oaChunk, whole bool) error {
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return streamError(c.Error)
	}
	if c.Model != "" {
		a.res.Model = c.Model
	}
	if u := c.Usage; u != nil {
		a.res.Usage = Usage{Input: u.PromptTokens, Cached: u.Details.Cached, Output: u.CompletionTokens}
		if u.Cost != nil {
			a.res.Usage.USD, a.res.Usage.Priced = *u.Cost, true
		}
	}
	if len(c.Choices) == 0 {
		return nil
	}
	ch := &c.Choices[0]
	d := &ch.Delta
	if whole {
		d = &ch.Message
	}
	if ch.FinishReason != "" {
		a.finish = ch.FinishReason
	}
	if d.Content != nil {
		a.text = append(a.text, *d.Content...)
	}
	if d.Refusal != nil && *d.Refusal != "" {
		a.text = append(a.text, *d.Refusal...)
		a.res.Stop = StopRefusal
	}
	a.think = append(append(a.think, d.ReasoningContent...), d.Reasoning...)
	for i := range d.ToolCalls {
		if whole {
			d.ToolCalls[i].Index = i
		}
		if err := a.call(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// maxCalls bounds the calls of one answer.
const maxCalls = 256

func (a *oaAnswer) call(c *oaCall) error {
	if c.Index < 0 || c.Index >= maxCalls {
		return &Error{Kind: Malformed, Message: "a tool call's index is out of range"}
	}
	// Some endpoints number every call 0 and tell them apart by id.
	if c.Index < len(a.calls) && c.ID != "" && a.calls[c.Index].ID != "" && a.calls[c.Index].ID != c.ID {
		c.Index = len(a.calls)
	} else if c.ID == "" && c.Index == 0 && len(a.calls) > 1 && a.calls[0].Function.Arguments != "" && json.Valid([]byte(a.calls[0].Function.Arguments)) {
		c.Index = len(a.calls) - 1
	}
	for c.Index >= len(a.calls) {
		a.calls = append(a.calls, oaCall{})
	}
	to := &a.calls[c.Index]
	if c.ID != "" {
		to.ID = c.ID
	}
	if c.Function.Name != "" {
		to.Function.Name = c.Function.Name
	}
	to.Function.Arguments += c.Function.Arguments
	return nil
}

func (a *oaAnswer) end() (*Response, error) {
	if a.finish == "" {
		return nil, &Error{Kind: Cut, Message: "the answer ended before it was complete"}
	}
	m := &a.res.Message
	m.Role, m.Reasoning = Assistant, string(a.think)
	if len(a.text) > 0 {
		m.Parts = []Part{{Text: string(a.text)}}
	}
	for _, c := range a.calls {
		m.Calls = append(m.Calls, newCall(c.ID, c.Function.Name, c.Function.Arguments, len(m.Calls)))
	}
	switch {
	case a.res.Stop != "":
	case len(m.Calls) > 0 && a.finish != "length": // some say "stop" beside calls
		a.res.Stop = StopTools
	case a.finish == "length":
		a.res.Stop = StopLength
	case a.finish == "content_filter":
		a.res.Stop = StopRefusal
	default:
		a.res.Stop = StopEnd
	}
	return &a.res, empty(&a.res)
}

// streamError is a failure that came inside an answer: a status is known at best by its code.
func streamError(raw json.RawMessage) error {
	var in struct {
		Code   any    `json:"code"`
		Type   string `json:"type"`
		Status int    `json:"status"`
	}
	_ = json.Unmarshal(raw, &in)
	status := in.Status
	if n, ok := in.Code.(float64); ok && status == 0 {
		status = int(n)
	}
	if status < 400 {
		status = map[string]int{
			"rate_limit_error": 429, "rate_limit_exceeded": 429, "invalid_request_error": 400, "authentication_error": 401,
			"billing_error": 402, "insufficient_quota": 402,
			"permission_error": 403, "not_found_error": 404, "request_too_large": 413,
		}[in.Type]
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	return statusError(status, said([]byte(`{"error":`+string(raw)+`}`)), nil)
}
