// Package modeltest is a model endpoint for tests: it speaks both dialects, answers what a test says, and fails in every way that real ones do.
package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
)

// Asked is one request that came.
type Asked struct {
	N        int    // from 0
	Dialect  string // of model; "" for the protocols that are none
	Protocol string // of serve
	Path     string
	Model    string
	Header   http.Header
	Body     map[string]any
	Question *serve.Question // nil: Body is none of its protocol
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
	q := Asked{Header: r.Header.Clone(), Path: r.URL.Path}
	switch r.URL.Path {
	default:
		q.Protocol = serve.ProtocolOf(r.URL.Path)
	case "/v1/chat/completions":
		q.Dialect, q.Protocol = model.OpenAI, serve.Chat
	case "/v1/messages":
		q.Dialect, q.Protocol = model.Anthropic, serve.Messages
	}
	if q.Protocol == "" {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &q.Body) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	q.Model, _ = q.Body["model"].(string)
	r.Body = io.NopCloser(bytes.NewReader(body))
	q.Question, _ = serve.Read(r)
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
	if a.Usage.Priced { // as LiteLLM tells it
		w.Header().Set("X-Litellm-Response-Cost", strconv.FormatFloat(a.Usage.USD, 'g', -1, 64))
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
	case a.Whole, q.wantsWhole():
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, q.whole(&a.Response))
	default:
		s.stream(w, r, q, &a)
	}
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, q Asked, a *Answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, e := range q.events(&a.Response) {
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

func (q Asked) whole(r *model.Response) string {
	if q.Question == nil {
		return serve.Whole(q.Protocol, q.Model, r)
	}
	return q.Question.Whole(r)
}

func (q Asked) events(r *model.Response) []string {
	if q.Question == nil {
		return serve.Events(q.Protocol, q.Model, r)
	}
	return q.Question.Events(r)
}

// wantsWhole tells whether the request asked for no stream.
func (q Asked) wantsWhole() bool {
	if q.Protocol == serve.Gemini {
		return strings.HasSuffix(q.Path, ":generateContent")
	}
	stream, _ := q.Body["stream"].(bool)
	return !stream
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
	walk(q.Body["instructions"])
	walk(q.Body["input"])
	walk(q.Body["contents"])
	walk(q.Body["messages"])
	return b.String()
}
