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

func extensionRows() []row {
	return []row{
		{"E16", "extension: a good call, and one that answers null", envOnly, checkExtension},
		{"E17", "extension: bad params", envOnly, checkBadExtension},
		{"E18", "extension: a coded failure", envOnly, checkCodedExtension},
		{"E19", "extension: a crash", envOnly, checkCrashedExtension},
		{"E20", "extension: a wrong verb, an unknown path", envOnly, checkExtensionRoutes},
		{"E26", "tool access: rules, and what is wrong with a body", envOnly, checkAccess},
	}
}

func checkExtension(ctx context.Context, p *probe) error {
	f := p.target.Fixture
	if f.OKExtension == nil && f.NullExtension == nil {
		return skip("the fixture has neither ok_extension nor null_extension")
	}
	if c := f.OKExtension; c != nil {
		resp, err := p.invoke(ctx, c, c.Params)
		if err != nil {
			return err
		}
		if resp.status != http.StatusOK || !json.Valid([]byte(resp.body)) {
			return fmt.Errorf("a good call: status %d, want 200 and JSON", resp.status)
		}
	}
	if c := f.NullExtension; c != nil {
		resp, err := p.invoke(ctx, c, c.Params)
		if err != nil {
			return err
		}
		if resp.status != http.StatusOK || strings.TrimSpace(resp.body) != "{}" {
			return fmt.Errorf("a null result: status %d and body %q, want 200 and {}", resp.status, short(resp.body))
		}
	}
	return nil
}

// failure reads a failed call and is an error unless status, code and applied are these; "" and 0 are not compared.
func failure(resp response, status int, code string, applied wire.Applied) error {
	if status != 0 && resp.status != status {
		return fmt.Errorf("status %d, want %d", resp.status, status)
	}
	f := wire.ReadFailure([]byte(resp.body))
	switch {
	case code != "" && f.Code != code:
		return fmt.Errorf("code %q, want %q", f.Code, code)
	case applied != "" && f.Applied != applied:
		return fmt.Errorf("applied %q, want %q", f.Applied, applied)
	case f.Message == "":
		return errors.New("the failure has no message")
	}
	return nil
}

// badCalls are calls that break the advertised schema of a POST method, beside those of the fixture.
func (p *probe) badCalls() []ExtensionCall {
	calls := p.target.Fixture.BadExtensions
	for _, c := range []*ExtensionCall{p.target.Fixture.OKExtension, p.target.Fixture.NullExtension} {
		if c == nil {
			continue
		}
		call, err := p.find(c.URI, c.Method)
		if err != nil || call.Verb == http.MethodGet {
			continue
		}
		for _, body := range []string{`{bad`, `[1]`, `"x"`} {
			calls = append(calls, ExtensionCall{URI: c.URI, Method: c.Method, Params: json.RawMessage(body)})
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(c.Params, &members) == nil && members != nil {
			members["conform_unknown"] = json.RawMessage("1")
			if b, err := json.Marshal(members); err == nil {
				calls = append(calls, ExtensionCall{URI: c.URI, Method: c.Method, Params: b})
			}
		}
	}
	return calls
}

func checkBadExtension(ctx context.Context, p *probe) error {
	calls := p.badCalls()
	if len(calls) == 0 {
		return skip("the fixture has neither bad_extensions nor a POST among the good calls")
	}
	for _, c := range calls {
		resp, err := p.invoke(ctx, &c, c.Params)
		if err != nil {
			return err
		}
		if err := failure(resp, http.StatusBadRequest, wire.CodeInvalidParams, wire.AppliedNo); err != nil {
			return fmt.Errorf("%s %s: %w", c.Method, c.Params, err)
		}
	}
	return nil
}

func checkCodedExtension(ctx context.Context, p *probe) error {
	c := p.target.Fixture.CodedExtension
	if c == nil {
		return skip("the fixture has no coded_extension")
	}
	if c.Before != nil {
		if _, err := p.invoke(ctx, c, c.Before); err != nil {
			return err
		}
	}
	resp, err := p.invoke(ctx, c, c.Params)
	if err != nil {
		return err
	}
	if err := failure(resp, c.Status, c.Code, wire.Applied(c.Applied)); err != nil {
		return err
	}
	f := wire.ReadFailure([]byte(resp.body))
	if f.Code == "" || f.Retryable != c.Retryable || f.Hint != c.Hint {
		return fmt.Errorf("code %q, retryable %v, hint %q; want a code, %v, %q", f.Code, f.Retryable, f.Hint, c.Retryable, c.Hint)
	}
	return nil
}

func checkCrashedExtension(ctx context.Context, p *probe) error {
	c := p.target.Fixture.CrashExtension
	if c == nil {
		return skip("the fixture has no crash_extension")
	}
	resp, err := p.invoke(ctx, c, c.Params)
	if err != nil {
		return err
	}
	return failure(resp, http.StatusInternalServerError, wire.CodeExtensionFailed, wire.AppliedUnknown)
}

func checkExtensionRoutes(ctx context.Context, p *probe) error {
	if err := p.status(ctx, http.MethodPost, wire.ExtensionPath+"conform/nothing", "{}", http.StatusNotFound); err != nil {
		return fmt.Errorf("an unknown path: %w", err)
	}
	for i := range p.card.Capabilities.Extensions {
		calls, err := p.card.Capabilities.Extensions[i].Calls()
		if err != nil {
			return err
		}
		for _, c := range calls {
			if !strings.HasPrefix(c.Path, "/") {
				continue
			}
			verb := http.MethodDelete // which methods of one path never share
			if c.Verb == verb {
				continue
			}
			if err := p.status(ctx, verb, c.Path, "", http.StatusMethodNotAllowed); err != nil {
				return fmt.Errorf("%s: %w", verb, err)
			}
		}
	}
	return nil
}

func checkAccess(ctx context.Context, p *probe) error {
	if p.card.Extension(wire.URNDisableTool) == nil || p.card.Extension(wire.URNEnableTool) == nil {
		return skip("the card doesn't offer " + wire.URNDisableTool + " and " + wire.URNEnableTool)
	}
	off, err := p.find(wire.URNDisableTool, "disable")
	if err != nil {
		return err
	}
	on, err := p.find(wire.URNEnableTool, "enable")
	if err != nil {
		return err
	}
	for _, c := range []struct{ path, body, want string }{
		{off.Path, `{"role":"conform","tools":["b","a"]}`, `{"role":"conform","disabled":["a","b"],"allowed":[]}`},
		{on.Path, `{"role":"conform","tools":["a"]}`, `{"role":"conform","disabled":["b"],"allowed":["a"]}`},
		{on.Path, `{"role":"conform","tools":"*"}`, `{"role":"conform","disabled":[],"allowed":["*"]}`},
	} {
		resp, err := p.do(ctx, http.MethodPost, c.path, c.body, "Content-Type", "application/json")
		if err != nil {
			return err
		}
		if resp.status != http.StatusOK || !sameJSON(resp.body, c.want) {
			return fmt.Errorf("%s: status %d and %s, want 200 and %s", c.body, resp.status, short(resp.body), c.want)
		}
	}
	for _, body := range []string{`{"tools":["a"]}`, `{"role":"","tools":["a"]}`, `{"role":"conform","tools":5}`, `{"role":"conform","tools":[1]}`, `{bad`} {
		resp, err := p.do(ctx, http.MethodPost, off.Path, body, "Content-Type", "application/json")
		if err != nil {
			return err
		}
		if err := failure(resp, http.StatusBadRequest, wire.CodeInvalidParams, ""); err != nil {
			return fmt.Errorf("%s: %w", body, err)
		}
	}
	return nil
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	ax, err1 := json.Marshal(x)
	by, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(ax) == string(by)
}
