// Package proxy carries HTTP requests to the servers behind a gateway, bodies streamed both ways, and writes into them who calls.
//
// It rewrites who calls and where to; what a request means, and who may send it, its callers decide.
package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	// Timeout ends a request that is still under way: loads of data take long.
	Timeout = time.Hour
	// MaxMessage bounds the body of a message to an MCP endpoint, which is read whole.
	MaxMessage = 64<<20 + 64<<10
)

// Target is where requests go.
type Target struct {
	Base      string // URL that paths are put behind
	Transport http.RoundTripper
	MCP       bool // an environment's server: messages to its MCP endpoint are stamped
	Log       *slog.Logger
}

// Forward sends r on as a request for an escaped path, below Base, in the given role, and streams the answer back. done, unless nil, is told the status
// once the answer has begun, and may hold it: it is called before anything is sent to the client.
func Forward(w http.ResponseWriter, r *http.Request, t Target, path, role string, done func(status int)) {
	base, err := url.Parse(t.Base)
	if err != nil {
		Error(w, http.StatusBadGateway, "the service's URL is no URL")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), Timeout)
	defer cancel()
	r = r.WithContext(ctx)
	if t.MCP && r.Method == http.MethodPost && (path == "mcp" || strings.HasPrefix(path, "mcp/") || strings.HasPrefix(path, "mcp?")) {
		if !stampBody(w, r, role) {
			return
		}
	}
	rp := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			raw := strings.TrimSuffix(base.EscapedPath(), "/") + "/" + path
			plain, err := url.PathUnescape(raw)
			if err != nil {
				plain, raw = raw, ""
			}
			pr.Out.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: plain, RawPath: raw, RawQuery: pr.In.URL.RawQuery}
			pr.Out.Host = base.Host
			pr.Out.Header.Set(wire.RoleHeader, role)
		},
		Transport:     t.Transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(logHandler(t.Log), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case r.Context().Err() != nil && errors.Is(r.Context().Err(), context.DeadlineExceeded):
				Error(w, http.StatusGatewayTimeout, "the service didn't answer in time")
			case r.Context().Err() != nil: // nobody is there to be told
			default:
				Error(w, http.StatusBadGateway, "the service can't be reached: "+err.Error())
			}
		},
	}
	if done != nil {
		rp.ModifyResponse = func(resp *http.Response) error {
			done(resp.StatusCode)
			return nil
		}
	}
	rp.ServeHTTP(w, r)
}

func logHandler(l *slog.Logger) slog.Handler {
	if l == nil {
		return slog.DiscardHandler
	}
	return l.Handler()
}

// Error answers with {"error":text}.
func Error(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	b := append(rawjson.AppendString([]byte(`{"error":`), text), '}')
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // to a client that may have gone
}

// stampBody reads the body and writes the role into it; false when it was refused.
func stampBody(w http.ResponseWriter, r *http.Request, role string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
	if err != nil {
		Error(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the message can't be read: %v", err))
		return false
	}
	body = StampMessage(body, role)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return true
}

// StampMessage writes a role into the params of a JSON-RPC message, or of each in a batch, and takes out any session. What is no such message is
// left as it is; its reader refuses it.
func StampMessage(body []byte, role string) []byte {
	if !json.Valid(body) {
		return body
	}
	if rawjson.Kind(body) == '[' {
		out := []byte{'['}
		for e := range rawjson.Elements(body) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, StampMessage(e, role)...)
		}
		return append(out, ']')
	}
	if rawjson.Kind(body) != '{' || rawjson.Get(body, "method") == nil {
		return body
	}
	out, stamped := []byte{'{'}, false
	for m := range rawjson.Members(body) {
		if m.Name == "params" && rawjson.Kind(m.Value) == '{' {
			m.Value, stamped = stampParams(m.Value, role), true
		}
		out = member(out, m)
	}
	if !stamped {
		return body
	}
	return append(out, '}')
}

func member(b []byte, m rawjson.Member) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(rawjson.AppendString(b, m.Name), ':'), m.Value...)
}

func stampParams(params []byte, role string) []byte {
	out := []byte{'{'}
	var meta []byte
	for m := range rawjson.Members(params) {
		if m.Name == "_meta" {
			meta = m.Value
			continue
		}
		out = member(out, m)
	}
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(AppendMeta(append(out, `"_meta":`...), meta, role, "", rawjson.Get(meta, "progressToken")), '}')
}

// AppendMeta appends the _meta of a request to a server: the client's own members but for those that say who calls, the role, and the session unless it
// is "". token is the progress token, nil for none.
func AppendMeta(b, client []byte, role, session string, token []byte) []byte {
	b = append(b, '{')
	for m := range rawjson.Members(client) {
		if strings.HasPrefix(m.Name, wire.MetaPrefix) || m.Name == "progressToken" {
			continue
		}
		b = append(append(append(rawjson.AppendString(b, m.Name), ':'), m.Value...), ',')
	}
	if token != nil {
		b = append(append(append(b, `"progressToken":`...), token...), ',')
	}
	b = append(b, `"`+wire.RoleMeta+`":`...)
	b = rawjson.AppendString(b, role)
	if session != "" {
		b = append(b, `,"`+wire.SessionMeta+`":`...)
		b = rawjson.AppendString(b, session)
	}
	return append(b, '}')
}
