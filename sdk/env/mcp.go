package env

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/wire"
)

// mcpHandler stands before the MCP SDK's handler. The SDK keeps sessions and frames messages; statuses and shapes of refusals are those that
// this protocol promises, an answer that is a single message is plain JSON, and ids that the SDK never answers are refused.
type mcpHandler struct {
	env  *Env
	next http.Handler
}

// served tells whether the SDK answers calls of a method.
func served(method string) bool {
	switch method {
	case "initialize", "ping", "tools/list", "tools/call", "logging/setLevel", "completion/complete", "prompts/list", "prompts/get",
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe":
		return true
	}
	return false
}

func newMCP(e *Env) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: e.name, Version: e.version}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		GetSessionID: newID,
		Logger:       e.log,
	})
	s.AddReceivingMiddleware(e.middleware)
	e.mu.Lock()
	e.mcp = s
	e.mu.Unlock()
	return &mcpHandler{e, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Logger: e.log, SessionTimeout: e.idle,
		// Gateways reach a server by whatever name they know it, and what is in a request's Host proves nothing here.
		DisableLocalhostProtection: true,
		MaxRequestBodyBytes:        -1, // limited here
	})}
}

// rawResult is a result whose JSON is known.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

func (r *rawResult) MarshalJSON() ([]byte, error) { return r.raw, nil }

// middleware answers everything about tools: the SDK's own registry sorts them, refuses names with an error of the protocol, and knows no roles.
func (e *Env) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			var meta map[string]any
			if r.Params != nil {
				meta = r.Params.Meta
			}
			raw, err := e.list(callOf(meta, headerOf(r.Extra), r.Session.ID()).Role)
			if err != nil {
				return nil, fmt.Errorf("list tools: %w", err)
			}
			return &rawResult{raw: raw}, nil
		case *mcp.CallToolRequest:
			c := callOf(r.Params.Meta, headerOf(r.Extra), r.Session.ID())
			if token := r.Params.GetProgressToken(); token != nil {
				c.progress = func(ctx context.Context, done, total float64, message string) {
					// A client that is gone hears nothing, and the tool goes on.
					_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: total, Message: message})
				}
			}
			return e.call(ctx, c, r.Params.Name, r.Params.Arguments), nil
		}
		return next(ctx, method, req)
	}
}

func headerOf(x *mcp.RequestExtra) http.Header {
	if x == nil {
		return nil
	}
	return x.Header
}

func (h *mcpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	jsonOK, streamOK := accepts(r.Header.Values("Accept"))
	out := &response{w: w}
	defer out.finish()
	switch r.Method {
	case http.MethodPost:
		h.env.enter()
		defer h.env.leave()
		defer out.finish() // before leave: then the answer is out
		if !jsonOK || !streamOK {
			out.refuse(http.StatusNotAcceptable, "Not Acceptable: Client must accept both application/json and text/event-stream")
			return
		}
		if !h.post(out, r) {
			return
		}
	case http.MethodGet:
		if !streamOK {
			out.refuse(http.StatusNotAcceptable, "Not Acceptable: Client must accept text/event-stream")
			return
		}
		out.stream = true
	case http.MethodDelete:
	default:
		w.Header().Set("Allow", "DELETE, GET, POST")
		out.refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	if r.Header.Get(wire.SessionHeader) == "" && out.method != "initialize" {
		out.refuse(http.StatusBadRequest, "Bad Request: Missing session ID")
		return
	}
	h.next.ServeHTTP(out, r)
}

// post reads and checks a message before the SDK does; false after it answered.
func (h *mcpHandler) post(out *response, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(out.w, r.Body, h.env.maxMessage))
	if err != nil {
		f := unreadable(err)
		out.refuse(f.Status, f.Message)
		return false
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
	}
	if t := bytes.TrimSpace(body); len(t) == 0 || t[0] != '{' || json.Unmarshal(body, &m) != nil {
		if json.Valid(body) {
			out.refuse(http.StatusBadRequest, "Bad Request: want one JSON-RPC message")
		} else {
			out.refuseCode(http.StatusBadRequest, wire.CodeParse, "Parse error")
		}
		return false
	}
	if len(m.Method) > 0 {
		if err := json.Unmarshal(m.Method, &out.method); err != nil {
			out.refuse(http.StatusBadRequest, "Bad Request: method must be a text")
			return false
		}
	}
	if out.id = m.ID; len(m.ID) > 0 && m.ID[0] != '"' && string(m.ID) != "null" {
		if _, err := strconv.ParseInt(string(m.ID), 10, 64); err != nil {
			out.refuse(http.StatusBadRequest, "Bad Request: id must be a text or a whole number of 64 bits")
			return false
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}

func accepts(values []string) (jsonOK, streamOK bool) {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			t, _, err := mime.ParseMediaType(one)
			if err != nil {
				continue
			}
			jsonOK = jsonOK || t == "application/json" || t == "application/*" || t == "*/*"
			streamOK = streamOK || t == "text/event-stream" || t == "text/*" || t == "*/*"
		}
	}
	return jsonOK, streamOK
}

// response holds an answer back until it is known what it is: an error gets the protocol's shape, a stream of a single message becomes that
// message, and any other stream is passed on as it comes.
type response struct {
	w       http.ResponseWriter
	id      json.RawMessage
	method  string
	stream  bool // passed on
	wrote   bool // the head is out
	status  int
	pending bytes.Buffer

	finished bool
}

func (o *response) Header() http.Header { return o.w.Header() }

func (o *response) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
}

func (o *response) Write(p []byte) (int, error) {
	if o.status == 0 {
		o.status = http.StatusOK
	}
	if o.stream && o.status == http.StatusOK {
		o.head()
		return o.w.Write(p)
	}
	n, err := o.pending.Write(p)
	if o.isStream() && bytes.Contains(o.pending.Bytes(), []byte("\n\n")) && !lastMessage(o.pending.Bytes()) {
		o.stream = true
		o.head()
		if _, err := o.w.Write(o.pending.Bytes()); err != nil {
			return 0, err
		}
		o.pending.Reset()
	}
	return n, err
}

func (o *response) isStream() bool {
	return o.status == http.StatusOK && strings.HasPrefix(o.Header().Get("Content-Type"), "text/event-stream")
}

func (o *response) head() {
	if !o.wrote {
		o.wrote = true
		o.w.WriteHeader(o.status)
	}
}

// Flush sends what is passed on; what is held back stays.
func (o *response) Flush() {
	if o.stream && (o.status == 0 || o.status == http.StatusOK) {
		o.status = http.StatusOK
		o.head()
		_ = http.NewResponseController(o.w).Flush() // a writer that can't flush sends at its end
	}
}

// lastMessage tells whether the events so far are one response: nothing follows it.
func lastMessage(events []byte) bool {
	d := json.NewDecoder(bytes.NewReader(payload(events)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return false
		}
		switch t {
		case "result", "error":
			return true
		case "method":
			return false
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return false
		}
	}
	return false
}

// payload is the data of the first event.
func payload(events []byte) []byte {
	for line := range bytes.SplitSeq(events, []byte("\n")) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			return bytes.TrimSpace(data)
		}
	}
	return nil
}

// finish sends what was held back.
func (o *response) finish() {
	if o.finished {
		return
	}
	o.finished = true
	switch {
	case o.wrote || o.status == 0:
	case o.status >= 400 && !strings.HasPrefix(o.Header().Get("Content-Type"), "application/json"):
		o.refused()
	case o.status == http.StatusNoContent:
		o.w.WriteHeader(http.StatusOK) // what DELETE answers
	case o.isStream() && o.pending.Len() > 0:
		o.Header().Set("Content-Type", "application/json")
		o.Header().Del("Connection")
		o.head()
		_, _ = o.w.Write(payload(o.pending.Bytes())) // a client that left needs no answer
	default:
		o.head()
		_, _ = o.w.Write(o.pending.Bytes()) // likewise
	}
}

// refused gives the SDK's text the shape of a JSON-RPC error.
func (o *response) refused() {
	text := strings.TrimSpace(o.pending.String())
	switch {
	case o.status == http.StatusNotFound:
		text = "Session not found"
	case o.status == http.StatusBadRequest && len(o.id) > 0 && !served(o.method):
		o.status = http.StatusOK
		o.send(o.id, wire.CodeMethod, "Method not found")
		return
	}
	o.send(json.RawMessage(`"server-error"`), wire.CodeRequest, text)
}

func (o *response) refuse(status int, text string) { o.refuseCode(status, wire.CodeRequest, text) }

func (o *response) refuseCode(status, code int, text string) {
	o.status = status
	o.send(json.RawMessage(`"server-error"`), code, text)
}

func (o *response) send(id json.RawMessage, code int, text string) {
	b, err := encode(wire.Response{ID: id, Error: &wire.Error{Code: code, Message: text}})
	if err != nil {
		b = []byte("{}") // an id that was read always encodes
	}
	o.wrote = true
	o.Header().Del("X-Content-Type-Options")
	o.Header().Del("Content-Length")
	answer(o.w, o.status, b)
}
