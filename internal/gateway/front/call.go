package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/calllog"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/proxy"
	"agentenv.internal/agentenv/internal/gateway/tools"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/sdk/wire"
)

// What ends a call before its answer.
var (
	errCancelled    = errors.New("the call was cancelled")
	errSessionEnded = errors.New("the session has ended")
)

// What can be wrong with a call before it reaches a server.
var (
	ErrUnknownTool = errors.New("unknown tool")
	ErrDisabled    = errors.New("disabled")
)

// caller is who calls a tool, and by which way.
type caller struct {
	role    string
	session string // of MCP; "" otherwise
	step    bool   // by /step
	sink    child.Sink
}

// outcome is how a call ended: a result of the tool, or an error of JSON-RPC that its server answered. Close it once it is written.
type outcome struct {
	result  child.Value
	rpcErr  child.Value
	changes string // the id of the last change, as JSON
	answer  *child.Answer
	own     bool // of a tool of the gateway's
}

func (o *outcome) Close() {
	if o.answer != nil {
		o.answer.Close()
	}
}

// call calls a tool and has it on record before it returns. args are JSON, nil for none given; meta is what the client put into _meta. The error tells
// that there is no result: ErrUnknownTool, ErrDisabled, one of package child, or why the log can't be written.
func (g *Gateway) call(ctx context.Context, c caller, name string, args, meta []byte) (*outcome, error) {
	t, own := g.set.Load().Get(name), g.own.Load().get(name)
	if t == nil && own == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownTool, name)
	}
	if !g.rules.Allowed(c.role, name, t != nil && t.Hidden) {
		return nil, fmt.Errorf("tool '%s' is %w for role '%s'", name, ErrDisabled, c.role)
	}
	id, err := g.calls.Append(calllog.Event{Type: "tool_call", Members: g.callMembers(c, name, t, args)})
	if err != nil {
		return nil, err
	}
	out, before, err := g.exclusive(ctx, func() (*outcome, error) {
		if own != nil {
			return &outcome{result: child.Bytes(own.call(ctx, c.role, args)), own: true}, nil
		}
		return g.callChild(ctx, c, t, args, meta)
	})
	if err != nil {
		return nil, g.failed(ctx, c, id, name, before, err)
	}
	if err := g.record(ctx, c, id, name, before, out); err != nil {
		out.Close()
		return nil, err
	}
	g.called(ctx, c.role, name, args, out)
	return out, nil
}

// exclusive does a call, alone where calls go one at a time, and tells the last change before and, in the outcome, after it.
func (g *Gateway) exclusive(ctx context.Context, do func() (*outcome, error)) (out *outcome, before string, err error) {
	if g.serial != nil {
		select {
		case g.serial <- struct{}{}:
			defer func() { <-g.serial }()
		case <-ctx.Done():
			return nil, "null", context.Cause(ctx)
		}
	}
	before = g.lastChange(ctx)
	if out, err = do(); err == nil {
		out.changes = g.lastChange(ctx)
	}
	return out, before, err
}

func (g *Gateway) callChild(ctx context.Context, c caller, t *tools.Tool, args, meta []byte) (*outcome, error) {
	b, err := g.find(t.Server)
	if err != nil {
		return nil, err
	}
	var token []byte
	if c.sink != nil {
		token = rawjson.Get(meta, "progressToken")
	}
	params := func(id uint64, p []byte) []byte {
		p = rawjson.AppendString(append(p, `{"name":`...), t.Own)
		if args != nil {
			p = append(append(p, `,"arguments":`...), args...)
		}
		p = append(p, `,"_meta":`...)
		var ours []byte
		if token != nil {
			ours = strconv.AppendUint(nil, id, 10)
		}
		return append(proxy.AppendMeta(p, meta, c.role, c.session, ours), '}')
	}
	a, err := b.mcp.Call(ctx, "tools/call", params, token, c.sink)
	if err != nil {
		return nil, fmt.Errorf("server %q %w", t.Server, err)
	}
	return &outcome{result: a.Result, rpcErr: a.Error, answer: a}, nil
}

// callMembers are those of a tool_call event. One of a tool that is served under another name than its own tells whose it is; t is nil for our own tools.
func (g *Gateway) callMembers(c caller, name string, t *tools.Tool, args []byte) []byte {
	b := make([]byte, 0, 128+len(args))
	b = append(b, source(c)...)
	b = append(b, `"tool_call":{"function_name":`...)
	b = rawjson.AppendString(b, name)
	b = append(b, `,"arguments":`...)
	if args == nil {
		args = []byte("{}")
	}
	b = rawjson.AppendString(append(append(b, args...), `},"role":`...), c.role)
	if t != nil && t.Own != name {
		b = rawjson.AppendString(append(b, `,"served_by":{"server":`...), t.Server)
		b = append(rawjson.AppendString(append(b, `,"tool":`...), t.Own), '}')
	}
	if causes := g.causes(c.role); causes != nil {
		b = append(append(b, `,"caused_by":`...), causes...)
	}
	return b
}

func source(c caller) string {
	if c.step {
		return `"source":"step_api",`
	}
	return ""
}

// record writes the event of a call that ended, and spills a large result first.
func (g *Gateway) record(ctx context.Context, c caller, id, tool, before string, out *outcome) error {
	g.observe(c, id, tool, before, out.changes, false)
	after := []byte(`"changelog_id_before":` + before + `,"changelog_id":` + out.changes)
	if !out.rpcErr.None() {
		text := string(out.rpcErr.Memory())
		m := rawjson.AppendString([]byte(source(c)+`"tool_call_event_id":"`+id+`","error":`), text[:min(len(text), 300)])
		_, err := g.calls.Append(calllog.Event{Type: "tool_call_failed", Members: append(append(m, ','), after...)})
		return err
	}
	if err := g.spill(ctx, c.role, out); err != nil {
		return err
	}
	_, err := g.calls.Append(calllog.Event{
		Type: "tool_call_result", Members: []byte(source(c) + `"tool_call_event_id":"` + id + `"`),
		Name: "tool_call_result", Value: out.result, After: after,
	})
	return err
}

// failed writes the event of a call without an answer, and gives the error that it failed with.
func (g *Gateway) failed(ctx context.Context, c caller, id, tool, before string, cause error) error {
	text, after := cause.Error(), g.lastChange(context.WithoutCancel(ctx))
	g.observe(c, id, tool, before, after, true)
	m := rawjson.AppendString([]byte(source(c)+`"tool_call_event_id":"`+id+`","error":`), text[:min(len(text), 300)])
	m = append(m, `,"changelog_id_before":`+before+`,"changelog_id":`+after...)
	if _, err := g.calls.Append(calllog.Event{Type: "tool_call_failed", Members: m}); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// observe remembers when a call could write.
func (g *Gateway) observe(c caller, id, tool, before, after string, failed bool) {
	if g.o.Changes == nil {
		return
	}
	b := rawjson.AppendString([]byte(`{"kind":"tool_call","event_id":"`+id+`","tool":`), tool)
	b = rawjson.AppendString(append(b, `,"role":`...), c.role)
	if causes := g.causes(c.role); causes != nil {
		b = append(append(b, `,"caused_by":`...), causes...)
	}
	if failed {
		b = append(b, `,"failed":true`...)
	}
	g.windows.add(before, after, append(b, '}'))
}

// lastChange is the id of the last change as JSON; null without a log of changes.
func (g *Gateway) lastChange(ctx context.Context) string {
	if g.o.Changes == nil {
		return "null"
	}
	id, err := g.o.Changes.Last(ctx)
	if err != nil {
		g.log.Debug("the last change can't be read", "error", err)
		return "null"
	}
	return strconv.FormatInt(id, 10)
}

// failure is the result that tells an agent why there is none.
func failure(err error) []byte {
	b := []byte(`{"content":[{"type":"text","text":`)
	code, text := "", err.Error()
	switch {
	case errors.Is(err, ErrUnknownTool):
		text = "U" + text[1:]
	case errors.Is(err, ErrDisabled):
		text, code = "T"+text[1:], wire.CodePermissionDenied
	}
	b = append(rawjson.AppendString(b, text), "}]"...)
	if code != "" {
		f := wire.Failure{Code: code, Message: text, Applied: wire.AppliedNo}
		if s, err := json.Marshal(f); err == nil {
			b = append(append(b, `,"structuredContent":`...), s...)
		}
	}
	return append(b, `,"isError":true}`...)
}

// CallTool calls a tool for a principal, who acts in their role, and gives the result, a CallToolResult as JSON, isError or not. The error tells that
// the tool didn't answer.
func (g *Gateway) CallTool(ctx context.Context, p access.Principal, tool string, args json.RawMessage) (json.RawMessage, error) {
	if args != nil && (!json.Valid(args) || rawjson.Kind(args) != '{') {
		return nil, errors.New("arguments must be a JSON object")
	}
	out, err := g.call(ctx, caller{role: access.RoleName(p.Role), step: true}, tool, args, nil)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if !out.rpcErr.None() {
		return nil, fmt.Errorf("tool %q: %s", tool, message(out.rpcErr))
	}
	b, err := all(out.result)
	if err != nil {
		return nil, fmt.Errorf("read a large result: %w", err)
	}
	return b, nil
}

// all is a value in memory of its own.
func all(v child.Value) ([]byte, error) {
	b := make([]byte, v.Len())
	if n, err := v.ReadAt(b, 0); err != nil && n < len(b) {
		return nil, err
	}
	return b, nil
}

// message is the text of a JSON-RPC error.
func message(v child.Value) string {
	if s, ok := rawjson.Text(rawjson.Get(v.Memory(), "message")); ok {
		return s
	}
	return "the server answered with an error"
}

// Tools are the entries of tools/list that a principal sees.
func (g *Gateway) Tools(p access.Principal) []json.RawMessage {
	role := access.RoleName(p.Role)
	var out []json.RawMessage
	for e := range rawjson.Elements(rawjson.Get(g.list(role).mcp, "tools")) {
		out = append(out, e)
	}
	return out
}
