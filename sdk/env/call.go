package env

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/sdk/wire"
)

// Call says who called and how; handlers ask CallFrom for it. Outside of a call it is empty.
type Call struct {
	Role      string          // "" when the caller has none
	Session   string          // of the agent's MCP session; "" when unknown
	Tool      string          // tool, extension method or data method
	Arguments json.RawMessage // as received: of a tool or extension, or the params of a data method; read only
	ID        string          // 32 hex digits, anew for each call
	progress  func(ctx context.Context, done, total float64, message string)
}

type callKey struct{}

// CallFrom is the call that ctx belongs to.
func CallFrom(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	if c == nil {
		return Call{}
	}
	return *c
}

// Progress tells the caller of a tool how far it is, if it asked to be told. total 0 is unknown.
func Progress(ctx context.Context, done, total float64, message string) {
	if c, _ := ctx.Value(callKey{}).(*Call); c != nil && c.progress != nil {
		c.progress(ctx, done, total, message)
	}
}

func withCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf reads who calls: from _meta when a gateway forwarded the call, which its role key alone tells, else from the headers.
func callOf(meta map[string]any, header http.Header, session string) *Call {
	c := &Call{ID: newID()}
	role, forwarded := meta[wire.RoleMeta]
	if forwarded {
		s, _ := role.(string)
		c.Role = roleOf(s)
		c.Session, _ = meta[wire.SessionMeta].(string)
		return c
	}
	c.Role, c.Session = roleOf(header.Get(wire.RoleHeader)), session
	return c
}

func roleOf(s string) string {
	if s = strings.TrimSpace(s); s == wire.DefaultRole {
		return ""
	}
	return s
}
