package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/sdk/wire"
)

// versions of MCP that clients may speak, oldest first. A client that asks for another gets the newest.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// maxMessage bounds one message of a client.
const maxMessage = 64<<20 + 64<<10

var requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepBuffer is the largest buffer that is used again.
const keepBuffer = 1 << 20

// mcp is the MCP endpoint of a door.
func (g *Gateway) mcp(w http.ResponseWriter, r *http.Request, p access.Principal) {
	switch r.Method {
	case http.MethodPost:
		g.mcpPost(w, r, p)
	case http.MethodGet:
		g.mcpGet(w, r, p)
	case http.MethodDelete:
		if s := g.mcpSession(w, r, p); s != nil {
			g.sessions.remove(s)
			w.WriteHeader(http.StatusOK)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		mcpError(w, http.StatusMethodNotAllowed, wire.CodeRequest, "Method Not Allowed")
	}
}

// mcpError answers as the transport, not as a method.
func mcpError(w http.ResponseWriter, status, code int, text string) {
	b := strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":"server-error","error":{"code":`), int64(code), 10)
	b = append(rawjson.AppendString(append(b, `,"message":`...), text), "}}"...)
	writeJSON(w, status, b)
}

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // to a client that may have gone
}

// accepts tells whether a request takes a media type.
func accepts(r *http.Request, kinds ...string) bool {
	header := strings.Join(r.Header.Values("Accept"), ",")
	for _, kind := range kinds {
		major, _, _ := strings.Cut(kind, "/")
		found := false
		for part := range strings.SplitSeq(header, ",") {
			part, _, _ = strings.Cut(part, ";")
			if part = strings.ToLower(strings.TrimSpace(part)); part == kind || part == "*/*" || part == major+"/*" {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// mcpSession finds the session that a request names; nil when it was answered instead.
func (g *Gateway) mcpSession(w http.ResponseWriter, r *http.Request, p access.Principal) *session {
	id := r.Header.Get(wire.SessionHeader)
	if id == "" {
		mcpError(w, http.StatusBadRequest, wire.CodeRequest, "Bad Request: Missing session ID")
		return nil
	}
	s := g.sessions.get(id, p)
	if s == nil {
		mcpError(w, http.StatusNotFound, wire.CodeRequest, "Session not found")
		return nil
	}
	if v := r.Header.Get("MCP-Protocol-Version"); v != "" && !slices.Contains(versions, v) {
		mcpError(w, http.StatusBadRequest, wire.CodeRequest, "Bad Request: Unsupported protocol version: "+v+"; supported: "+strings.Join(versions, ", "))
		return nil
	}
	return s
}

func (g *Gateway) mcpPost(w http.ResponseWriter, r *http.Request, p access.Principal) {
	if !accepts(r, "application/json", "text/event-stream") {
		mcpError(w, http.StatusNotAcceptable, wire.CodeRequest, "Not Acceptable: Client must accept both application/json and text/event-stream")
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		mcpError(w, http.StatusUnsupportedMediaType, wire.CodeRequest, "Unsupported Media Type: Content-Type must be application/json")
		return
	}
	buf := requests.Get().(*bytes.Buffer)
	buf.Reset()
	defer func() {
		if buf.Cap() <= keepBuffer {
			requests.Put(buf)
		}
	}()
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxMessage)); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			mcpError(w, http.StatusRequestEntityTooLarge, wire.CodeRequest, "Payload too large: at most "+strconv.Itoa(maxMessage>>20)+" MiB")
		}
		return
	}
	m, code, text := readMessage(buf.Bytes())
	if code != 0 {
		mcpError(w, http.StatusBadRequest, code, text)
		return
	}
	if m.method == "initialize" && m.id != nil {
		g.initialize(w, r, p, m)
		return
	}
	s := g.mcpSession(w, r, p)
	if s == nil {
		return
	}
	switch {
	case m.method == "":
		s.answered(m)
		w.WriteHeader(http.StatusAccepted)
	case m.id == nil:
		if m.method == "notifications/cancelled" {
			s.cancel(string(rawjson.Get(m.params, "requestId")))
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		g.request(w, r, s, m)
	}
}

// message is what a client sent: a request, a notification (no id) or an answer (no method).
type rpcMessage struct {
	id, params, result, err []byte
	method                  string
}

var memberNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// readMessage reads a body. code is 0, or what is wrong.
func readMessage(body []byte) (m rpcMessage, code int, text string) {
	var v [6][]byte
	if err := rawjson.Pick(body, memberNames, v[:]); err != nil {
		if rawjson.Kind(body) == '[' {
			return m, wire.CodeRequest, "Invalid Request: batches are not taken"
		}
		return m, wire.CodeParse, "Parse error: " + err.Error()
	}
	m = rpcMessage{params: v[3], result: v[4], err: v[5]}
	if version, _ := rawjson.Text(v[0]); version != "2.0" {
		return m, wire.CodeRequest, `Invalid Request: jsonrpc must be "2.0"`
	}
	if v[1] != nil {
		k := rawjson.Kind(v[1])
		if k != '"' && k != '-' && (k < '0' || k > '9') || len(v[1]) > 1024 {
			return m, wire.CodeRequest, "Invalid Request: id must be a string or a number"
		}
		m.id = v[1]
	}
	if v[2] != nil {
		if m.method, _ = rawjson.Text(v[2]); m.method == "" {
			return m, wire.CodeRequest, "Invalid Request: method must be a string"
		}
		return m, 0, ""
	}
	if m.id == nil || v[4] == nil && v[5] == nil {
		return m, wire.CodeRequest, "Invalid Request: neither a request nor an answer"
	}
	return m, 0, ""
}

// initialize begins a session, whose role is fixed now.
func (g *Gateway) initialize(w http.ResponseWriter, r *http.Request, p access.Principal, m rpcMessage) {
	if id := r.Header.Get(wire.SessionHeader); id != "" {
		if s := g.mcpSession(w, r, p); s != nil {
			mcpError(w, http.StatusBadRequest, wire.CodeRequest, "Bad Request: the session is initialized")
		}
		return
	}
	version, _ := rawjson.Text(rawjson.Get(m.params, "protocolVersion"))
	if !slices.Contains(versions, version) {
		version = versions[len(versions)-1]
	}
	caps := rawjson.Get(m.params, "capabilities")
	asks := map[string]bool{
		"sampling/createMessage": !rawjson.IsNull(rawjson.Get(caps, "sampling")),
		"elicitation/create":     !rawjson.IsNull(rawjson.Get(caps, "elicitation")),
	}
	s := g.sessions.add(p, role(r, p), version, asks)
	if s == nil {
		w.Header().Set("Retry-After", "1")
		mcpError(w, http.StatusServiceUnavailable, wire.CodeInternal, "too many sessions have calls under way")
		return
	}
	b := append(append([]byte(`{"jsonrpc":"2.0","id":`), m.id...), `,"result":{"protocolVersion":`...)
	b = rawjson.AppendString(b, version)
	b = append(b, `,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":`...)
	b = rawjson.AppendString(b, g.o.Name)
	b = rawjson.AppendString(append(b, `,"version":`...), g.o.Version)
	w.Header().Set(wire.SessionHeader, s.id)
	writeJSON(w, http.StatusOK, append(b, "}}}"...))
}

// role is whom a request acts as: only the owner may say so.
func role(r *http.Request, p access.Principal) string {
	if p.Owner {
		return access.RoleName(r.Header.Get(wire.RoleHeader))
	}
	return access.RoleName(p.Role)
}

// request answers one request of a session.
func (g *Gateway) request(w http.ResponseWriter, r *http.Request, s *session, m rpcMessage) {
	head := append(append(make([]byte, 0, 64), `{"jsonrpc":"2.0","id":`...), m.id...)
	switch m.method {
	case "tools/call":
		g.toolCall(w, r, s, m, head)
	case "tools/list":
		writeJSON(w, http.StatusOK, append(append(append(head, `,"result":`...), g.list(s.role).mcp...), '}'))
	case "ping":
		writeJSON(w, http.StatusOK, append(head, `,"result":{}}`...))
	case "logging/setLevel":
		writeJSON(w, http.StatusOK, append(head, `,"result":{}}`...))
	default:
		writeJSON(w, http.StatusOK, rpcError(head, wire.CodeMethod, "Method not found: "+m.method))
	}
}

func rpcError(head []byte, code int, text string) []byte {
	b := strconv.AppendInt(append(head, `,"error":{"code":`...), int64(code), 10)
	return append(rawjson.AppendString(append(b, `,"message":`...), text), "}}"...)
}

// slowAnswer is when a call's answer becomes a stream, so that nothing between us and the client takes the silence for a fault; pulse is how often it is broken.
const (
	slowAnswer = 10 * time.Second
	pulse      = 15 * time.Second
)

func (g *Gateway) toolCall(w http.ResponseWriter, r *http.Request, s *session, m rpcMessage, head []byte) {
	name, ok := rawjson.Text(rawjson.Get(m.params, "name"))
	args := rawjson.Get(m.params, "arguments")
	if rawjson.IsNull(args) {
		args = nil
	}
	if !ok || args != nil && rawjson.Kind(args) != '{' {
		writeJSON(w, http.StatusOK, rpcError(head, wire.CodeParams, "Invalid params: a call has a name and arguments, an object"))
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	done := s.begin(string(m.id), cancel)
	defer done()
	defer func() { s.used.Store(g.o.Now().UnixNano()) }()
	reply := &reply{w: w, s: s}
	reply.start()
	out, err := g.call(ctx, caller{role: s.role, session: s.id, sink: reply}, name, args, rawjson.Get(m.params, "_meta"))
	reply.stop()
	switch {
	case err != nil && (errors.Is(err, errCancelled) || errors.Is(err, errSessionEnded)):
		reply.finish(head, child.Bytes(rpcError(nil, 0, "Request cancelled")), nil)
		return
	case err != nil:
		reply.finish(append(head, `,"result":`...), child.Bytes(failure(err)), []byte{'}'})
		return
	}
	defer out.Close()
	if !out.rpcErr.None() {
		reply.finish(append(head, `,"error":`...), out.rpcErr, []byte{'}'})
		return
	}
	reply.finish(append(head, `,"result":`...), out.result, []byte{'}'})
}

// mcpGet is the standing stream of a session.
func (g *Gateway) mcpGet(w http.ResponseWriter, r *http.Request, p access.Principal) {
	if !accepts(r, "text/event-stream") {
		mcpError(w, http.StatusNotAcceptable, wire.CodeRequest, "Not Acceptable: Client must accept text/event-stream")
		return
	}
	s := g.mcpSession(w, r, p)
	if s == nil {
		return
	}
	news, done, ok := s.listen()
	if !ok {
		mcpError(w, http.StatusConflict, wire.CodeRequest, "Conflict: Only one SSE stream is allowed per session")
		return
	}
	defer done()
	flusher := http.NewResponseController(w)
	streamHeaders(w, s)
	_ = flusher.Flush() // a writer that can't flush sends at its own time
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		case <-g.ctx.Done():
			return
		case msg := <-news:
			err = writeEvent(w, child.Bytes(msg))
		case <-tick.C:
			_, err = io.WriteString(w, ": alive\n\n")
		}
		if err == nil {
			err = flusher.Flush()
		}
		if err != nil {
			return
		}
	}
}

func streamHeaders(w http.ResponseWriter, s *session) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set(wire.SessionHeader, s.id)
	w.WriteHeader(http.StatusOK)
}
