package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/wire"
)

// Bounds of what is read of an answer and shown of it.
const (
	maxAnswer   = 64 << 20
	maxEvidence = 400
)

// probe talks to the server and notes what was said.
type probe struct {
	target   Target
	kind     string
	card     wire.Card
	evidence []string
	sent     int // counts what must be unique
}

type response struct {
	status int
	header http.Header
	body   string
}

// do sends one request. header are names and values in turn.
func (p *probe) do(ctx context.Context, method, path, body string, header ...string) (response, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.target.URL+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if body == "" {
		r.Body, r.ContentLength = nil, 0
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	said := method + " " + path
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] != "Content-Type" {
			said += " " + header[i] + ":" + header[i+1]
		}
	}
	if body != "" {
		said += " " + body
	}
	resp, err := p.target.Client.Do(r)
	if err != nil {
		p.note("%s → %v", said, err)
		return response{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		p.note("%s → %d, then %v", said, resp.StatusCode, err)
		return response{}, err
	}
	p.note("%s → %d %s", short(said), resp.StatusCode, short(string(b)))
	return response{resp.StatusCode, resp.Header, string(b)}, nil
}

func (p *probe) note(format string, args ...any) {
	p.evidence = append(p.evidence, fmt.Sprintf(format, args...))
}

func short(s string) string {
	if len(s) <= maxEvidence {
		return s
	}
	cut := maxEvidence
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s))
}

// post sends a body to the data plane and reads the answer, which must have status 200.
func (p *probe) post(ctx context.Context, body string) (wire.Response, error) {
	resp, err := p.do(ctx, http.MethodPost, wire.DataPath, body, "Content-Type", "application/json")
	if err != nil {
		return wire.Response{}, err
	}
	if resp.status != http.StatusOK {
		return wire.Response{}, fmt.Errorf("status %d, want 200", resp.status)
	}
	r, err := wire.DecodeResponse([]byte(resp.body))
	if err != nil {
		return r, fmt.Errorf("no JSON-RPC response: %w", err)
	}
	return r, nil
}

// rpc calls a method of the data plane; params "" leaves them out.
func (p *probe) rpc(ctx context.Context, method, params string) (wire.Response, error) {
	b, err := json.Marshal(wire.Request{ID: json.RawMessage("1"), Method: method, Params: json.RawMessage(params)})
	if err != nil {
		return wire.Response{}, err
	}
	r, err := p.post(ctx, string(b))
	if err == nil && string(r.ID) != "1" {
		err = fmt.Errorf("the answer's id is %s, want 1", orNull(r.ID))
	}
	return r, err
}

func orNull(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

// fine is an error unless a call succeeded.
func fine(r wire.Response, err error) error {
	switch {
	case err != nil:
		return err
	case r.Error != nil:
		return fmt.Errorf("error %d %q, want a result", r.Error.Code, r.Error.Message)
	}
	return nil
}

// refusal is an error unless a call failed with this code.
func refusal(r wire.Response, err error, code int) error {
	switch {
	case err != nil:
		return err
	case r.Error == nil:
		return fmt.Errorf("a result, want error %d", code)
	case r.Error.Code != code:
		return fmt.Errorf("error %d %q, want %d", r.Error.Code, r.Error.Message, code)
	}
	return nil
}

// serves is a skip unless the card advertises a method of the data plane.
func (p *probe) serves(methods ...string) error {
	for _, m := range methods {
		if !p.card.Serves(m) {
			return skip("the card doesn't offer " + m)
		}
	}
	return nil
}

// invoke calls an extension's method with a body of its own.
func (p *probe) invoke(ctx context.Context, c *ExtensionCall, params json.RawMessage) (response, error) {
	call, err := p.find(c.URI, c.Method)
	if err != nil {
		return response{}, err
	}
	if call.Verb != http.MethodGet {
		return p.do(ctx, call.Verb, call.Path, string(params), "Content-Type", "application/json")
	}
	q := url.Values{}
	var members map[string]any
	if len(params) > 0 {
		if err := json.Unmarshal(params, &members); err != nil {
			return response{}, fmt.Errorf("the fixture's params for a GET must be an object: %w", err)
		}
	}
	for k, v := range members {
		q.Set(k, fmt.Sprint(v))
	}
	path := call.Path
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return p.do(ctx, http.MethodGet, path, "")
}

func (p *probe) find(uri, method string) (wire.Call, error) {
	x := p.card.Extension(uri)
	if x == nil {
		return wire.Call{}, fmt.Errorf("the card has no extension %s", uri)
	}
	calls, err := x.Calls()
	if err != nil {
		return wire.Call{}, err
	}
	for _, c := range calls {
		if method == "" || c.Name == method {
			return c, nil
		}
	}
	return wire.Call{}, fmt.Errorf("extension %s has no method %q", uri, method)
}

// session is an MCP session.
type session struct {
	p      *probe
	id     string
	header []string
	next   int
}

const (
	acceptBoth = "application/json, text/event-stream"
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"conform","version":"1"}}}`
)

func (p *probe) mcpPath() string {
	path := p.card.MCP()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

// connect opens a session; header are names and values that its requests carry.
func (p *probe) connect(ctx context.Context, header ...string) (*session, error) {
	s := &session{p: p, header: header}
	resp, err := s.send(ctx, initialize)
	if err != nil {
		return nil, err
	}
	if resp.status != http.StatusOK {
		return nil, fmt.Errorf("initialize: status %d, want 200", resp.status)
	}
	if s.id = resp.header.Get(wire.SessionHeader); s.id == "" {
		return nil, errors.New("initialize: the answer has no header mcp-session-id")
	}
	if _, err := message(resp, "0"); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	resp, err = s.send(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if err != nil {
		return nil, err
	}
	if resp.status != http.StatusAccepted {
		return nil, fmt.Errorf("notifications/initialized: status %d, want 202", resp.status)
	}
	return s, nil
}

// send posts a message in the session, with more headers.
func (s *session) send(ctx context.Context, body string, header ...string) (response, error) {
	h := []string{"Content-Type", "application/json", "Accept", acceptBoth}
	if s.id != "" {
		h = append(h, wire.SessionHeader, s.id, "MCP-Protocol-Version", "2025-11-25")
	}
	h = append(append(h, s.header...), header...)
	return s.p.do(ctx, http.MethodPost, s.p.mcpPath(), body, h...)
}

// call asks a method and answers its response, whatever it holds.
func (s *session) call(ctx context.Context, method string, params any, header ...string) (wire.Response, error) {
	s.next++
	raw, err := json.Marshal(params)
	if err != nil {
		return wire.Response{}, err
	}
	id := fmt.Sprint(s.next)
	b, err := json.Marshal(wire.Request{ID: json.RawMessage(id), Method: method, Params: raw})
	if err != nil {
		return wire.Response{}, err
	}
	resp, err := s.send(ctx, string(b), header...)
	if err != nil {
		return wire.Response{}, err
	}
	if resp.status != http.StatusOK {
		return wire.Response{}, fmt.Errorf("%s: status %d, want 200", method, resp.status)
	}
	return message(resp, id)
}

// toolResult is the part of a tools/call result that rows speak about.
type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

func (r toolResult) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// tool calls a tool; a JSON-RPC error is an error.
func (s *session) tool(ctx context.Context, t *ToolCall, meta map[string]any, header ...string) (toolResult, error) {
	args := t.Arguments
	if args == nil {
		args = json.RawMessage("{}")
	}
	params := map[string]any{"name": t.Name, "arguments": args}
	if meta != nil {
		params["_meta"] = meta
	}
	r, err := s.call(ctx, "tools/call", params, header...)
	if err := fine(r, err); err != nil {
		return toolResult{}, err
	}
	var out toolResult
	if err := json.Unmarshal(r.Result, &out); err != nil {
		return out, fmt.Errorf("the result is no tool's: %w", err)
	}
	return out, nil
}

type listedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Meta        map[string]any  `json:"_meta"`
}

// tools lists all tools, page by page.
func (s *session) tools(ctx context.Context) ([]listedTool, error) {
	var out []listedTool
	params := map[string]any{}
	for range 100 {
		r, err := s.call(ctx, "tools/list", params)
		if err := fine(r, err); err != nil {
			return nil, err
		}
		var page struct {
			Tools []listedTool `json:"tools"`
			Next  string       `json:"nextCursor"`
		}
		if err := json.Unmarshal(r.Result, &page); err != nil {
			return nil, fmt.Errorf("tools/list: %w", err)
		}
		out = append(out, page.Tools...)
		if page.Next == "" {
			return out, nil
		}
		params["cursor"] = page.Next
	}
	return nil, errors.New("tools/list: more than 100 pages")
}

func (s *session) close(ctx context.Context) (int, error) {
	resp, err := s.p.do(ctx, http.MethodDelete, s.p.mcpPath(), "", append([]string{wire.SessionHeader, s.id}, s.header...)...)
	return resp.status, err
}

// message finds the response with an id in an answer, JSON or events.
func message(resp response, id string) (wire.Response, error) {
	for _, b := range messages(resp) {
		if r, err := wire.DecodeResponse(b); err == nil && string(r.ID) == id {
			return r, nil
		}
	}
	return wire.Response{}, fmt.Errorf("the answer holds no response with id %s", id)
}

func messages(resp response) [][]byte {
	if !strings.HasPrefix(resp.header.Get("Content-Type"), "text/event-stream") {
		return [][]byte{[]byte(resp.body)}
	}
	var out [][]byte
	var data bytes.Buffer
	for line := range strings.Lines(resp.body + "\n\n") {
		line = strings.TrimRight(line, "\r\n")
		if d, ok := strings.CutPrefix(line, "data:"); ok {
			data.WriteString(strings.TrimPrefix(d, " "))
		} else if line == "" && data.Len() > 0 {
			out = append(out, bytes.Clone(data.Bytes()))
			data.Reset()
		}
	}
	return out
}
