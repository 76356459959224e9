// Package mcp gives agents of this process the tools of MCP servers: programs that speak on their standard streams, and servers elsewhere.
//
// A Server is one connection. A program is this process's child in a group of its own, with an environment that holds nothing of ours but what
// programs need to run; it ends with Close. What a tool answers is passed on as it came.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/gateway/child"
)

// Server is a connection to an MCP server. Its methods may be called from several goroutines; who opened it closes it.
type Server interface {
	// Tools are the entries of its list of tools, as it wrote them.
	Tools(ctx context.Context) ([]json.RawMessage, error)
	// Call is the result of a tool (CallToolResult). A *ToolError is the server's refusal; ErrGone that it can't be asked any more.
	Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error)
	Close() error
}

// ErrGone: the server can't be reached, or has ended.
var ErrGone = errors.New("the MCP server is gone")

// ToolError is an error that a server answered a call with.
type ToolError struct{ Message string }

func (e *ToolError) Error() string { return e.Message }

// Bounds.
const (
	openTime = 30 * time.Second
	callTime = 10 * time.Minute
	maxTools = 1000
	maxPages = 100
	version  = "2025-11-25"
)

// Remote is a server elsewhere, which speaks streamable HTTP.
type Remote struct {
	Name, URL string // URL is its MCP endpoint, whole
	Headers   map[string]string
	Log       *slog.Logger
	Limit     time.Duration // for its tools to be known; 0 is half a minute
}

// Dial connects to a server elsewhere: it answers when the server's tools are known, and fails when they aren't within the limit.
func Dial(ctx context.Context, r Remote) (Server, error) {
	up := make(chan struct{}, 1)
	c := child.New(child.Options{
		Name: r.Name, URL: r.URL, MCP: r.URL, Log: r.Log, Deadline: callTime, Transport: withHeaders{r.Headers, child.Transport(nil)},
		Changed: func() {
			select {
			case up <- struct{}{}:
			default:
			}
		},
	})
	c.Start(context.WithoutCancel(ctx))
	wait, cancel := context.WithTimeout(ctx, limit(r.Limit))
	defer cancel()
	for !c.Status().Listed {
		select {
		case <-up:
		case <-time.After(50 * time.Millisecond): // Changed doesn't say what has not changed
		case <-wait.Done():
			err := c.Status().Err
			c.Close()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("the MCP server %s can't be reached: %w", r.Name, errors.Join(ErrGone, err))
		}
		if st := c.Status(); st.Err != nil && !st.Listed && errors.Is(st.Err, child.ErrBroken) {
			c.Close()
			return nil, fmt.Errorf("the MCP server %s can't be used: %w", r.Name, st.Err)
		}
	}
	return &remote{c}, nil
}

// limit is how long a server may take to come up.
func limit(d time.Duration) time.Duration {
	if d == 0 {
		return openTime
	}
	return d
}

type withHeaders struct {
	headers map[string]string
	next    http.RoundTripper
}

func (w withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(w.headers) > 0 {
		r = r.Clone(r.Context())
		for k, v := range w.headers {
			r.Header.Set(k, v)
		}
	}
	return w.next.RoundTrip(r)
}

type remote struct{ c *child.Child }

func (r *remote) Tools(context.Context) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, t := range r.c.Tools() {
		out = append(out, t)
	}
	return out, nil
}

func (r *remote) Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	params, err := callParams(tool, args)
	if err != nil {
		return nil, err
	}
	a, err := r.c.Call(ctx, "tools/call", func(_ uint64, b []byte) []byte { return append(b, params...) }, nil, nil)
	switch {
	case errors.Is(err, child.ErrDown), errors.Is(err, child.ErrLost):
		return nil, errors.Join(ErrGone, err)
	case err != nil:
		return nil, err
	}
	defer a.Close()
	v := a.Result
	if !a.Error.None() {
		v = a.Error
	}
	b := make([]byte, v.Len())
	if n, err := v.ReadAt(b, 0); err != nil && n < len(b) {
		return nil, fmt.Errorf("read a large result: %w", err)
	}
	if a.Error.None() {
		return b, nil
	}
	var e struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(b, &e) // an error without a message is one too
	return nil, &ToolError{e.Message}
}

func (r *remote) Close() error { r.c.Close(); return nil }

func callParams(tool string, args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	return json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{tool, args})
}

// ToolName is the name in an entry of a list of tools; "" where there is none.
func ToolName(entry json.RawMessage) string {
	var t struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(entry, &t) // one that can't be read has no name
	return t.Name
}
