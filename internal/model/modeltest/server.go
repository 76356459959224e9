// Package modeltest is a model endpoint for tests: it speaks both dialects, answers what a test says, and fails in every way that real ones do.
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/model"
)

// Asked is one request that came.
type Asked struct {
	N       int // from 0
	Dialect string
	Model   string
	Header  http.Header
	Body    map[string]any
}

// Answer is what the endpoint does.
type Answer struct {
	model.Response
	Status     int    // other than 200: an error of Text
	Text       string // of an error, or the whole body when Raw
	RetryAfter string
	Location   string        // of a redirection
	Raw        bool          // Text is the body, of type Media
	Media      string        // "": application/json
	Delay      time.Duration // before anything is answered
	CutAfter   int           // events of a stream after which the connection breaks; 0: never
	EndAfter   int           // events of a stream after which it ends, cleanly but early; 0: never
	StreamFail string        // an error of this type comes inside the stream
	Whole      bool          // in one piece, not as a stream
	Hang       bool          // nothing more comes until the client leaves
}

// Say is a plain answer.
func Say(text string) Answer {
	return Answer{Response: model.Response{
		Stop: model.StopEnd, Message: model.Text(model.Assistant, text), Usage: model.Usage{Input: 10, Output: 5},
	}}
}

// Call is an answer that calls one tool.
func Call(id, name, args string) Answer {
	return Answer{Response: model.Response{
		Stop: model.StopTools, Usage: model.Usage{Input: 10, Output: 5},
		Message: model.Message{Role: model.Assistant, Calls: []model.ToolCall{{ID: id, Name: name, Args: json.RawMessage(args)}}},
	}}
}

// Server is the endpoint.
type Server struct {
	URL string

	mu    sync.Mutex
	asked []Asked
	stop  chan struct{}
}

// New starts an endpoint that lives as long as the test. play is called for each request, from several goroutines.
func New(t testing.TB, play func(Asked) Answer) *Server {
	s := &Server{stop: make(chan struct{})}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, play) }))
	t.Cleanup(func() {
		close(s.stop)
		h.CloseClientConnections()
		h.Close()
	})
	s.URL = h.URL
	return s
}

// Asked is what came so far.
func (s *Server) Asked() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Asked(nil), s.asked...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, play func(Asked) Answer) {
	q := Asked{Header: r.Header.Clone()}
	switch r.URL.Path {
	case "/v1/chat/completions":
		q.Dialect = model.OpenAI
	case "/v1/messages":
		q.Dialect = model.Anthropic
	default:
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &q.Body) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	q.Model, _ = q.Body["model"].(string)
	s.mu.Lock()
	q.N = len(s.asked)
	s.asked = append(s.asked, q)
	s.mu.Unlock()

	a := play(q)
	if a.Delay > 0 {
		select {
		case <-time.After(a.Delay):
		case <-r.Context().Done():
			return
		}
	}
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	switch {
	case a.Raw:
		media := a.Media
		if media == "" {
			media = "application/json"
		}
		w.Header().Set("Content-Type", media)
		if a.Status != 0 {
			w.WriteHeader(a.Status)
		}
		io.WriteString(w, a.Text)
	case a.Status != 0 && a.Status != http.StatusOK:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.Status)
		json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": a.Text, "type": "error"}})
	case a.Whole:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, wholeOf(q, &a.Response))
	default:
		s.stream(w, r, q, &a)
	}
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, q Asked, a *Answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := openAIEvents(q, &a.Response)
	if q.Dialect == model.Anthropic {
		events = anthropicEvents(q, &a.Response)
	}
	for i, e := range events {
		if a.StreamFail != "" && i == 1 {
			fmt.Fprintf(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":\"as the test says\"}}\n\n", a.StreamFail)
			return
		}
		if a.CutAfter > 0 && i == a.CutAfter {
			panic(http.ErrAbortHandler)
		}
		if a.EndAfter > 0 && i == a.EndAfter {
			return
		}
		io.WriteString(w, e)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if a.Hang {
			select {
			case <-r.Context().Done():
			case <-s.stop:
			}
			return
		}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func data(v any) string { return "data: " + text(v) + "\n\n" }

// halves splits a text, so that streams have to be put together again.
func halves(s string) []string {
	if len(s) < 2 {
		return []string{s}
	}
	i := len(s) / 2
	for i < len(s) && s[i]&0xC0 == 0x80 {
		i++
	}
	return []string{s[:i], s[i:]}
}

var openAIStops = map[string]string{model.StopEnd: "stop", model.StopTools: "tool_calls", model.StopLength: "length", model.StopRefusal: "content_filter"}

func argsOf(c model.ToolCall) string {
	if c.Malformed != "" {
		return c.Malformed
	}
	return string(c.Args)
}

func openAIEvents(q Asked, r *model.Response) []string {
	chunk := func(delta map[string]any, finish any) string {
		return data(map[string]any{"model": q.Model, "choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	out := []string{chunk(map[string]any{"role": "assistant", "content": ""}, nil)}
	if r.Message.Reasoning != "" {
		out = append(out, chunk(map[string]any{"reasoning_content": r.Message.Reasoning}, nil))
	}
	if t := r.Message.Text(); t != "" {
		for _, h := range halves(t) {
			out = append(out, chunk(map[string]any{"content": h}, nil))
		}
	}
	for i, c := range r.Message.Calls {
		for j, h := range halves(argsOf(c)) {
			f := map[string]any{"arguments": h}
			call := map[string]any{"index": i, "function": f}
			if j == 0 {
				f["name"], call["id"], call["type"] = c.Name, c.ID, "function"
			}
			out = append(out, chunk(map[string]any{"tool_calls": []any{call}}, nil))
		}
	}
	out = append(out, chunk(map[string]any{}, openAIStops[r.Stop]))
	out = append(out, data(map[string]any{"model": q.Model, "choices": []any{}, "usage": openAIUsage(r)}))
	return append(out, "data: [DONE]\n\n")
}

func openAIUsage(r *model.Response) any {
	return map[string]any{
		"prompt_tokens": r.Usage.Input, "completion_tokens": r.Usage.Output, "prompt_tokens_details": map[string]any{"cached_tokens": r.Usage.Cached},
	}
}

var anthropicStops = map[string]string{model.StopEnd: "end_turn", model.StopTools: "tool_use", model.StopLength: "max_tokens", model.StopRefusal: "refusal"}

func anthropicUsage(r *model.Response) map[string]any {
	return map[string]any{
		"input_tokens": r.Usage.Input - r.Usage.Cached - r.Usage.CacheWrites, "cache_read_input_tokens": r.Usage.Cached,
		"cache_creation_input_tokens": r.Usage.CacheWrites, "output_tokens": r.Usage.Output,
	}
}

func anthropicEvents(q Asked, r *model.Response) []string {
	event := func(typ string, m map[string]any) string {
		m["type"] = typ
		return "event: " + typ + "\n" + data(m)
	}
	out := []string{event("message_start", map[string]any{"message": map[string]any{"model": q.Model, "usage": anthropicUsage(r)}}), event("ping", map[string]any{})}
	n := 0
	block := func(start map[string]any, deltas ...map[string]any) {
		out = append(out, event("content_block_start", map[string]any{"index": n, "content_block": start}))
		for _, d := range deltas {
			out = append(out, event("content_block_delta", map[string]any{"index": n, "delta": d}))
		}
		out = append(out, event("content_block_stop", map[string]any{"index": n}))
		n++
	}
	if r.Message.Reasoning != "" {
		block(map[string]any{"type": "thinking", "thinking": ""},
			map[string]any{"type": "thinking_delta", "thinking": r.Message.Reasoning}, map[string]any{"type": "signature_delta", "signature": "sig"})
	}
	if t := r.Message.Text(); t != "" {
		var ds []map[string]any
		for _, h := range halves(t) {
			ds = append(ds, map[string]any{"type": "text_delta", "text": h})
		}
		block(map[string]any{"type": "text", "text": ""}, ds...)
	}
	for _, c := range r.Message.Calls {
		var ds []map[string]any
		for _, h := range halves(argsOf(c)) {
			ds = append(ds, map[string]any{"type": "input_json_delta", "partial_json": h})
		}
		block(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}}, ds...)
	}
	out = append(out, event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": anthropicStops[r.Stop]}, "usage": map[string]any{"output_tokens": r.Usage.Output}}))
	return append(out, event("message_stop", map[string]any{}))
}

func wholeOf(q Asked, r *model.Response) string {
	if q.Dialect == model.Anthropic {
		var blocks []any
		if t := r.Message.Text(); t != "" {
			blocks = append(blocks, map[string]any{"type": "text", "text": t})
		}
		for _, c := range r.Message.Calls {
			blocks = append(blocks, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.Args})
		}
		return text(map[string]any{"model": q.Model, "content": blocks, "stop_reason": anthropicStops[r.Stop], "usage": anthropicUsage(r)})
	}
	m := map[string]any{"role": "assistant", "content": r.Message.Text()}
	var calls []any
	for _, c := range r.Message.Calls {
		calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": argsOf(c)}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return text(map[string]any{
		"model": q.Model, "usage": openAIUsage(r), "choices": []any{map[string]any{"message": m, "finish_reason": openAIStops[r.Stop]}},
	})
}

// Flat is every text that a request's messages and system prompt hold, for tests that look for one.
func (q Asked) Flat() string {
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(q.Body["system"])
	walk(q.Body["messages"])
	return b.String()
}
