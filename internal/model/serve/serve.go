// Package serve is the other side of the protocols of models: it reads what agents ask and writes what a Model answers, as OpenAI's chat
// completions and responses, Anthropic's messages, or Gemini's generateContent.
//
// It serves agents that were written for an endpoint when what answers is none: a scripted model, or one that is reached in another dialect.
// What a protocol can say and a Model can't (audio, several candidates, stored responses) is refused.
package serve

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/internal/model"
)

// Protocols.
const (
	Chat      = "chat"      // POST …/chat/completions
	Responses = "responses" // POST …/responses
	Messages  = "messages"  // POST …/messages
	Gemini    = "gemini"    // POST …/models/NAME:generateContent and :streamGenerateContent
)

// ProtocolOf tells by a request's path which protocol it speaks; "" for none of them.
func ProtocolOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return Chat
	case strings.HasSuffix(path, "/responses"):
		return Responses
	case strings.HasSuffix(path, "/messages"):
		return Messages
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return Gemini
	}
	return ""
}

// Question is a request as it came.
type Question struct {
	Protocol string
	Stream   bool
	Request  model.Request

	spaces spaces // of Responses
}

// maxBody bounds a request.
const maxBody = 64 << 20

// Read reads a request of one of the protocols.
func Read(r *http.Request) (*Question, error) {
	q := &Question{Protocol: ProtocolOf(r.URL.Path)}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("a request is longer than %d MiB", maxBody>>20)
	}
	if q.Protocol == Gemini {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		q.Request.Model, _, _ = strings.Cut(name, ":")
		q.Stream = strings.HasSuffix(name, ":streamGenerateContent")
	}
	if err := q.decode(body); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *Question) decode(body []byte) error {
	switch q.Protocol {
	case Chat:
		return q.chat(body)
	case Responses:
		return q.responses(body)
	case Messages:
		return q.messages(body)
	case Gemini:
		return q.gemini(body)
	}
	return errors.New("the path is of no protocol that is served here: chat/completions, responses, messages, models/NAME:generateContent")
}

// Write writes the answer to q.
func Write(w http.ResponseWriter, q *Question, res *model.Response) {
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, q.Whole(res))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range q.Events(res) {
		io.WriteString(w, e)
	}
}

// Whole is the answer to q in one piece.
func (q *Question) Whole(r *model.Response) string {
	return whole(q.Protocol, q.Request.Model, r, newForm(q.spaces))
}

// Events is the answer to q as the events of a stream.
func (q *Question) Events(r *model.Response) []string {
	return eventsOf(q.Protocol, q.Request.Model, r, newForm(q.spaces))
}

// Fail writes a failure as the protocol's clients read it.
func Fail(w http.ResponseWriter, protocol string, err error) {
	status, message := http.StatusBadRequest, err.Error()
	var e *model.Error
	if errors.As(err, &e) {
		status = map[string]int{
			model.RateLimited: 429, model.Overloaded: 503, model.Unreachable: 502, model.Cut: 502, model.TimedOut: 504, model.Denied: 401,
			model.NoModel: 404, model.TooLong: 400, model.Invalid: 400, model.Malformed: 502,
		}[e.Kind]
		if status == 0 {
			status = http.StatusInternalServerError
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	in := map[string]any{"message": message, "type": errorType(status), "code": status}
	out := map[string]any{"error": in}
	switch protocol {
	case Messages:
		out = map[string]any{"type": "error", "error": map[string]any{"type": errorType(status), "message": message}}
	case Gemini:
		in["status"] = strings.ToUpper(errorType(status))
	}
	io.WriteString(w, text(out))
}

func errorType(status int) string {
	switch {
	case status == 429:
		return "rate_limit_error"
	case status == 401:
		return "authentication_error"
	case status == 404:
		return "not_found_error"
	case status < 500:
		return "invalid_request_error"
	}
	return "api_error"
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, lists and texts alone
	}
	return string(b)
}

// form is what one answer is written with: an id that no other has, since agents take messages of one id for one message, and the agent's namespaces.
type form struct {
	spaces spaces
	unique string
}

func newForm(in spaces) form { return form{in, strings.ToLower(rand.Text())} }

func (f form) id(prefix string) string { return prefix + f.unique }

// Whole is an answer in one piece.
func Whole(protocol, name string, r *model.Response) string {
	return whole(protocol, name, r, newForm(nil))
}

func whole(protocol, name string, r *model.Response, f form) string {
	switch protocol {
	case Responses:
		return text(responseOf(name, r, "completed", itemsOf(r, f), f))
	case Messages:
		return text(map[string]any{
			"id": f.id("msg_"), "type": "message", "role": "assistant", "model": name, "content": blocksOf(r), "stop_reason": anthropicStops[r.Stop],
			"stop_sequence": nil, "usage": anthropicUsage(r),
		})
	case Gemini:
		return text(geminiOf(name, r, geminiParts(r), true, f))
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
		"id": f.id("chatcmpl-"), "object": "chat.completion", "model": name, "usage": chatUsage(r),
		"choices": []any{map[string]any{"index": 0, "message": m, "finish_reason": chatStops[r.Stop]}},
	})
}

// Events is an answer as the events of a stream, texts and arguments in two pieces each, as endpoints cut them.
func Events(protocol, name string, r *model.Response) []string {
	return eventsOf(protocol, name, r, newForm(nil))
}

func eventsOf(protocol, name string, r *model.Response, f form) []string {
	switch protocol {
	case Responses:
		return responseEvents(name, r, f)
	case Messages:
		return messageEvents(name, r, f)
	case Gemini:
		return geminiEvents(name, r, f)
	}
	return chatEvents(name, r, f)
}

func data(v any) string { return "data: " + text(v) + "\n\n" }

func event(typ string, m map[string]any) string {
	m["type"] = typ
	return "event: " + typ + "\n" + data(m)
}

// halves splits a text between characters.
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

func argsOf(c model.ToolCall) string {
	if c.Malformed != "" {
		return c.Malformed
	}
	return string(c.Args)
}

// callOf is a call as it came back in a request.
func callOf(id, name, args string) model.ToolCall {
	c := model.ToolCall{ID: id, Name: name, Args: json.RawMessage(args)}
	if a := strings.TrimSpace(args); a == "" || a[0] != '{' || !json.Valid([]byte(a)) {
		c.Args = json.RawMessage("{}")
		if a != "" {
			c.Malformed = args
		}
	}
	return c
}
