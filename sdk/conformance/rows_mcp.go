package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"agentenv.internal/agentenv/sdk/wire"
)

func mcpRows() []row {
	return []row{
		{"E21", "MCP: a session's life", anyServer, checkSession},
		{"E22", "MCP: no session, an unknown one, a bad Accept", anyServer, checkNoSession},
		{"E23", "MCP: a coded failure of a tool", envOnly, checkCodedTool},
		{"E24", "MCP: an unknown tool, bad arguments, a crash", anyServer, checkToolErrors},
		{"E25", "MCP: a hidden or disabled tool", envOnly, checkHidden},
		{"E27", "context: role and session from headers", envOnly, checkHeaderContext},
		{"E28", "context: _meta wins over headers", envOnly, checkMetaContext},
	}
}

func checkSession(ctx context.Context, p *probe) error {
	s, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if _, err := s.tools(ctx); err != nil {
		return err
	}
	status, err := s.close(ctx)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("DELETE: status %d, want 200", status)
	}
	return nil
}

func checkNoSession(ctx context.Context, p *probe) error {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for _, c := range []struct {
		name   string
		want   int
		header []string
	}{
		{"no session", http.StatusBadRequest, []string{"Accept", acceptBoth}},
		{"an unknown session", http.StatusNotFound, []string{"Accept", acceptBoth, wire.SessionHeader, "0123456789abcdef0123456789abcdef"}},
		{"Accept without events", http.StatusNotAcceptable, []string{"Accept", "application/json"}},
		{"Accept of something else", http.StatusNotAcceptable, []string{"Accept", "text/html"}},
	} {
		if err := p.status(ctx, http.MethodPost, p.mcpPath(), list, c.want, append(c.header, "Content-Type", "application/json")...); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return p.status(ctx, http.MethodGet, p.mcpPath(), "", http.StatusNotAcceptable, "Accept", "application/json")
}

func checkCodedTool(ctx context.Context, p *probe) error {
	t := p.target.Fixture.CodedTool
	if t == nil {
		return skip("the fixture has no coded_tool")
	}
	s, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer s.end(ctx)
	r, err := s.tool(ctx, t, nil)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if !r.IsError || json.Unmarshal(r.Structured, &fields) != nil {
		return errors.New("want an error result with structured content")
	}
	for _, name := range []string{"code", "message", "retryable", "applied"} {
		if fields[name] == nil {
			return fmt.Errorf("structuredContent has no %s", name)
		}
	}
	f := wire.ReadStructured(r.Structured)
	if want := f.Code + ": " + f.Message; f.Code == "" || r.text() != want {
		return fmt.Errorf("text %q, want %q", r.text(), want)
	}
	return nil
}

// end closes a session that a row used; whether DELETE works is a row of its own.
func (s *session) end(ctx context.Context) { _, _ = s.close(ctx) }

func checkToolErrors(ctx context.Context, p *probe) error {
	s, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer s.end(ctx)
	calls := []struct {
		name string
		call *ToolCall
	}{{"an unknown tool", &ToolCall{Name: "conform_no_such_tool"}}, {"bad arguments", p.target.Fixture.BadTool}, {"a crash", p.target.Fixture.CrashTool}}
	if calls[1].call == nil {
		tools, err := s.tools(ctx)
		if err != nil {
			return err
		}
		calls[1].call = withRequired(tools)
	}
	for _, c := range calls {
		if c.call == nil {
			continue
		}
		r, err := s.tool(ctx, c.call, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if !r.IsError || r.text() == "" {
			return fmt.Errorf("%s: want a result with isError true and a text", c.name)
		}
	}
	return nil
}

// withRequired is a call without arguments of a tool that needs some; nil when there is none.
func withRequired(tools []listedTool) *ToolCall {
	for _, t := range tools {
		var s struct {
			Required []string `json:"required"`
		}
		if json.Unmarshal(t.InputSchema, &s) == nil && len(s.Required) > 0 {
			return &ToolCall{Name: t.Name}
		}
	}
	return nil
}

func checkHidden(ctx context.Context, p *probe) error {
	if p.card.Extension(wire.URNDisableTool) == nil {
		return skip("the card doesn't offer " + wire.URNDisableTool)
	}
	off, err := p.find(wire.URNDisableTool, "disable")
	if err != nil {
		return err
	}
	on, err := p.find(wire.URNEnableTool, "enable")
	if err != nil {
		return err
	}
	s, err := p.connect(ctx, wire.RoleHeader, "conform")
	if err != nil {
		return err
	}
	defer s.end(ctx)
	before, err := s.tools(ctx)
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return skip("the server lists no tools")
	}
	if h := p.target.Fixture.HiddenTool; h != nil {
		if err := refusedTool(ctx, s, h, before); err != nil {
			return fmt.Errorf("hidden tool %s: %w", h.Name, err)
		}
	}
	victim := &ToolCall{Name: before[0].Name}
	body, err := json.Marshal(map[string]any{"role": "conform", "tools": []string{victim.Name}})
	if err != nil {
		return err
	}
	if err := p.status(ctx, http.MethodPost, off.Path, string(body), http.StatusOK, "Content-Type", "application/json"); err != nil {
		return fmt.Errorf("disable: %w", err)
	}
	after, err := s.tools(ctx)
	if err != nil {
		return err
	}
	bad := refusedTool(ctx, s, victim, after)
	if err := p.status(ctx, http.MethodPost, on.Path, string(body), http.StatusOK, "Content-Type", "application/json"); err != nil {
		return errors.Join(bad, fmt.Errorf("enable: %w", err))
	}
	return bad
}

// refusedTool is an error unless a tool isn't listed and calling it is refused.
func refusedTool(ctx context.Context, s *session, t *ToolCall, listed []listedTool) error {
	if slices.ContainsFunc(listed, func(l listedTool) bool { return l.Name == t.Name }) {
		return errors.New("it is listed")
	}
	r, err := s.tool(ctx, t, nil)
	if err != nil {
		return err
	}
	if f := wire.ReadStructured(r.Structured); !r.IsError || f.Code != wire.CodePermissionDenied {
		return fmt.Errorf("a call is answered with isError %v and code %q, want true and %q", r.IsError, f.Code, wire.CodePermissionDenied)
	}
	return nil
}

// caller asks the fixture's tool who called; role and session are "" for none.
func caller(ctx context.Context, s *session, t *ToolCall, meta map[string]any, header ...string) (role, sess string, err error) {
	r, err := s.tool(ctx, t, meta, header...)
	if err != nil {
		return "", "", err
	}
	if r.IsError {
		return "", "", fmt.Errorf("%s fails: %s", t.Name, short(r.text()))
	}
	var out struct {
		Role    *string `json:"role"`
		Session *string `json:"session"`
	}
	if err := json.Unmarshal([]byte(r.text()), &out); err != nil {
		return "", "", fmt.Errorf("%s doesn't answer JSON with role and session: %w", t.Name, err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return text(out.Role), text(out.Session), nil
}

func checkHeaderContext(ctx context.Context, p *probe) error {
	t := p.target.Fixture.ContextTool
	if t == nil {
		return skip("the fixture has no context_tool")
	}
	s, err := p.connect(ctx, wire.RoleHeader, "solver")
	if err != nil {
		return err
	}
	defer s.end(ctx)
	role, sess, err := caller(ctx, s, t, nil)
	if err != nil {
		return err
	}
	if role != "solver" || sess != s.id {
		return fmt.Errorf("role %q and session %q, want solver and the session's id", role, sess)
	}
	return nil
}

func checkMetaContext(ctx context.Context, p *probe) error {
	t := p.target.Fixture.ContextTool
	if t == nil {
		return skip("the fixture has no context_tool")
	}
	s, err := p.connect(ctx, wire.RoleHeader, "solver")
	if err != nil {
		return err
	}
	defer s.end(ctx)
	for _, c := range []struct {
		meta               map[string]any
		wantRole, wantSess string
	}{
		{map[string]any{wire.RoleMeta: wire.DefaultRole, wire.SessionMeta: "sess9"}, "", "sess9"},
		{map[string]any{wire.RoleMeta: wire.DefaultRole}, "", ""},
		{map[string]any{wire.RoleMeta: " judge ", wire.SessionMeta: "sess9"}, "judge", "sess9"},
	} {
		role, sess, err := caller(ctx, s, t, c.meta)
		if err != nil {
			return err
		}
		if role != c.wantRole || sess != c.wantSess {
			return fmt.Errorf("_meta %v: role %q and session %q, want %q and %q", c.meta, role, sess, c.wantRole, c.wantSess)
		}
	}
	return nil
}
