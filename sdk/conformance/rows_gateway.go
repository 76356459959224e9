package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"agentenv.internal/agentenv/sdk/wire"
)

func gatewayRows() []row {
	gateway := []string{KindGateway}
	return []row{
		{"G1", "gateway: a child that is down is left out of the card", gateway, func(context.Context, *probe) error {
			return skip("a child would have to be ended")
		}},
		{"G2", "gateway: children's addresses lead through it", gateway, checkChildren},
		{"G3", "gateway: the data plane of one child, or none", gateway, checkGatewayData},
		{"G4", "gateway: the role of a session stays", gateway, checkGatewayRole},
		{"G5", "gateway: tools of one name", gateway, checkClash},
		{"G6", "gateway: the clock", gateway, checkClock},
	}
}

// ofWebsite tells whether paths below a prefix lead to the backend of a website, which goes by the website's name.
func ofWebsite(prefix string) bool {
	key, ok := strings.CutPrefix(prefix, "/svc/")
	return ok && key != "" && !strings.Contains(key, "/") && !strings.HasPrefix(key, "mcp-")
}

func checkChildren(_ context.Context, p *probe) error {
	if len(p.card.Children) == 0 {
		return skip("the card has no children")
	}
	for _, c := range p.card.Children {
		prefix, whole := strings.CutSuffix(c.URL, wire.DataPath)
		if !whole || prefix != "/svc/mcp-"+c.Name && !ofWebsite(prefix) {
			return fmt.Errorf("child %s: url %q, want %q", c.Name, c.URL, "/svc/mcp-"+c.Name+wire.DataPath)
		}
		apps := c.Children != nil && c.Extension(wire.URNComputer) != nil // of a computer
		if c.Children != nil && !apps || c.Interfaces == nil || len(c.Interfaces) != 0 {
			return fmt.Errorf("child %s: want children null and additionalInterfaces []", c.Name)
		}
		for i := range c.Capabilities.Extensions {
			x := &c.Capabilities.Extensions[i]
			calls, err := x.Calls()
			if err != nil {
				return fmt.Errorf("child %s: %w", c.Name, err)
			}
			for _, call := range calls {
				if !strings.HasPrefix(call.Path, prefix+"/") && !sameCall(p.card.Extension(x.URI), call) {
					return fmt.Errorf("child %s: %s leads to %s, neither below %s nor to the gateway's own", c.Name, x.URI, call.Path, prefix)
				}
			}
		}
	}
	return nil
}

// sameCall tells whether an extension of the gateway has this very call.
func sameCall(x *wire.Extension, call wire.Call) bool {
	if x == nil {
		return false
	}
	calls, err := x.Calls()
	if err != nil {
		return false
	}
	for _, c := range calls {
		if c.Verb == call.Verb && c.Path == call.Path {
			return true
		}
	}
	return false
}

func checkGatewayData(ctx context.Context, p *probe) error {
	r, err := p.rpc(ctx, wire.Get, "{}")
	if len(p.card.Children) != 1 {
		return refusal(r, err, wire.CodeHandler)
	}
	if !p.card.Children[0].Serves(wire.Get) {
		return refusal(r, err, wire.CodeMethod)
	}
	return partsOf(r, err)
}

func checkGatewayRole(ctx context.Context, p *probe) error {
	t := p.target.Fixture.ContextTool
	if t == nil {
		return skip("the fixture has no context_tool")
	}
	s, err := p.connect(ctx, wire.RoleHeader, "first")
	if err != nil {
		return err
	}
	defer s.end(ctx)
	s.header = nil
	var sessions []string
	for _, c := range []struct {
		name   string
		meta   map[string]any
		header []string
	}{
		{"a role in _meta", map[string]any{wire.RoleMeta: "forged", wire.SessionMeta: "forged"}, []string{wire.RoleHeader, "first"}},
		{"another role in the header", nil, []string{wire.RoleHeader, "second"}},
	} {
		role, sess, err := caller(ctx, s, t, c.meta, c.header...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if role != "first" || sess == "forged" || sess == "" {
			return fmt.Errorf("%s: the child saw role %q and session %q, want first and the gateway's own", c.name, role, sess)
		}
		sessions = append(sessions, sess)
	}
	if sessions[0] != sessions[1] {
		return errors.New("the child saw two sessions of one")
	}
	return nil
}

func checkClash(ctx context.Context, p *probe) error {
	resp, err := p.do(ctx, http.MethodGet, "/state", "")
	if err != nil {
		return err
	}
	var state struct {
		Clashes map[string]json.RawMessage `json:"tool_name_clashes"`
	}
	if resp.status != http.StatusOK || json.Unmarshal([]byte(resp.body), &state) != nil || state.Clashes == nil {
		return fmt.Errorf("/state: status %d, want 200 and tool_name_clashes", resp.status)
	}
	if len(state.Clashes) == 0 {
		return skip("no two children have a tool of one name")
	}
	return p.status(ctx, http.MethodPost, "/step", `{"action":"list_tools"}`, http.StatusServiceUnavailable, "Content-Type", "application/json")
}

func checkClock(ctx context.Context, p *probe) error {
	const typ = "Content-Type"
	clear := func() error {
		return p.status(ctx, http.MethodPost, "/clock/clear", "", http.StatusOK)
	}
	set := func(body string, want int) error {
		if err := p.status(ctx, http.MethodPut, "/clock/set-time", body, want, typ, "application/json"); err != nil {
			return fmt.Errorf("set %s: %w", body, err)
		}
		return nil
	}
	if err := errors.Join(clear(), clear()); err != nil {
		return fmt.Errorf("clear twice: %w", err)
	}
	if err := p.status(ctx, http.MethodGet, "/clock/time", "", http.StatusNotFound); err != nil {
		return fmt.Errorf("read while it isn't set: %w", err)
	}
	for _, body := range []string{`{"virtual_time":"soon"}`, `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":-1}`, `{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":86401}`, `{bad`} {
		if err := set(body, http.StatusBadRequest); err != nil {
			return err
		}
	}
	if err := set(`{"virtual_time":"2030-01-02T03:04:05Z","virtual_seconds_per_real_second":60}`, http.StatusOK); err != nil {
		return err
	}
	resp, err := p.do(ctx, http.MethodGet, "/clock/time", "")
	if err == nil && (resp.status != http.StatusOK || !strings.Contains(resp.body, `"2030-01-02T`)) {
		err = fmt.Errorf("read: status %d and %s, want 200 and the time that was set", resp.status, short(resp.body))
	}
	return errors.Join(err, clear())
}
