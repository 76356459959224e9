package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

var (
	anyServer = []string{KindEnvironment, KindGateway}
	envOnly   = []string{KindEnvironment}
)

func dataRows() []row {
	return []row{
		{"E1", "card: served, with what callers need", anyServer, checkCard},
		{"E2", "card: other verbs are refused", anyServer, func(ctx context.Context, p *probe) error {
			return p.status(ctx, http.MethodPost, wire.CardPath, "{}", http.StatusMethodNotAllowed)
		}},
		{"E3", "reset: whatever params, and nothing added is left", envOnly, checkReset},
		{"E4", "add: loads", envOnly, checkAdd},
		{"E5", "add: bad params", envOnly, checkBadAdd},
		{"E6", "add: the environment refuses", envOnly, checkRefused},
		{"E7", "get: a list of parts without nulls", envOnly, checkGet},
		{"E8", "get: a valid write_namespace", envOnly, checkNamespace},
		{"E9", "get: an invalid write_namespace tells no value", envOnly, checkBadNamespace},
		{"E10", "get: a write_namespace that isn't offered is ignored", envOnly, checkIgnoredNamespace},
		{"E11", "any: a method that isn't served", envOnly, checkUnknownMethod},
		{"E12", "any: what is no request", anyServer, checkNoRequest},
		{"E13", "any: a method that is no text", anyServer, func(ctx context.Context, p *probe) error {
			r, err := p.post(ctx, `{"jsonrpc":"2.0","id":13,"method":["data/get"]}`)
			return refusal(r, err, wire.CodeRequest)
		}},
		{"E14", "any: without id, answered with null", envOnly, func(ctx context.Context, p *probe) error {
			r, err := p.post(ctx, `{"jsonrpc":"2.0","method":"data/nothing"}`)
			if err == nil && r.ID != nil {
				err = fmt.Errorf("the answer's id is %s, want null", r.ID)
			}
			return refusal(r, err, wire.CodeMethod)
		}},
		{"E15", "data plane: GET is refused", anyServer, func(ctx context.Context, p *probe) error {
			return p.status(ctx, http.MethodGet, wire.DataPath, "", http.StatusMethodNotAllowed)
		}},
	}
}

// status is an error unless a request is answered with this status.
func (p *probe) status(ctx context.Context, method, path, body string, want int, header ...string) error {
	resp, err := p.do(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	if resp.status != want {
		return fmt.Errorf("status %d, want %d", resp.status, want)
	}
	return nil
}

func checkCard(ctx context.Context, p *probe) error {
	resp, err := p.do(ctx, http.MethodGet, wire.CardPath, "")
	if err != nil {
		return err
	}
	if resp.status != http.StatusOK || !strings.HasPrefix(resp.header.Get("Content-Type"), "application/json") {
		return fmt.Errorf("status %d and type %q, want 200 and JSON", resp.status, resp.header.Get("Content-Type"))
	}
	if _, err := wire.ParseCard([]byte(resp.body)); err != nil {
		return err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal([]byte(resp.body), &top); err != nil {
		return err
	}
	if c := string(top["capabilities"]); c == "" || c == "null" || c == "{}" {
		return errors.New("capabilities are empty")
	}
	return nil
}

// holds tells whether the answer of data/get has the fixture's text.
func (p *probe) holds(ctx context.Context) (bool, error) {
	r, err := p.rpc(ctx, wire.Get, "{}")
	if err := fine(r, err); err != nil {
		return false, fmt.Errorf("get: %w", err)
	}
	if strings.Contains(string(r.Result), p.target.Fixture.Added) {
		return true, nil
	}
	parts, err := wire.ParseParts(r.Result)
	if err != nil {
		return false, err
	}
	for _, part := range parts {
		if part.File == nil || !part.File.Inline() {
			continue
		}
		if b, err := part.File.Content(); err == nil && strings.Contains(string(b), p.target.Fixture.Added) {
			return true, nil
		}
	}
	return false, nil
}

func checkReset(ctx context.Context, p *probe) error {
	if err := p.serves(wire.Reset); err != nil {
		return err
	}
	f := p.target.Fixture
	if f.Add != nil && p.card.Serves(wire.Add) {
		if r, err := p.rpc(ctx, wire.Add, string(f.Add)); fine(r, err) != nil {
			return fmt.Errorf("add: %w", fine(r, err))
		}
	}
	for _, params := range []string{`{"a":[1]}`, `[1]`, ``} {
		r, err := p.rpc(ctx, wire.Reset, params)
		if err := fine(r, err); err != nil {
			return err
		}
		if string(r.Result) != "{}" {
			return fmt.Errorf("result %s, want {}", r.Result)
		}
	}
	if f.Add == nil || f.Added == "" || p.serves(wire.Add, wire.Get) != nil {
		return nil
	}
	there, err := p.holds(ctx)
	if err == nil && there {
		err = errors.New("get still shows what was added")
	}
	return err
}

func checkAdd(ctx context.Context, p *probe) error {
	if err := p.serves(wire.Add); err != nil {
		return err
	}
	f := p.target.Fixture
	if f.Add == nil {
		return skip("the fixture has no add")
	}
	r, err := p.rpc(ctx, wire.Add, string(f.Add))
	if err := fine(r, err); err != nil {
		return err
	}
	if string(r.Result) != "{}" {
		return fmt.Errorf("result %s, want {}", r.Result)
	}
	if f.Added == "" || !p.card.Serves(wire.Get) {
		return nil
	}
	there, err := p.holds(ctx)
	if err == nil && !there {
		err = fmt.Errorf("get doesn't show %q", f.Added)
	}
	return err
}

func checkBadAdd(ctx context.Context, p *probe) error {
	if err := p.serves(wire.Add); err != nil {
		return err
	}
	for _, params := range []string{`{}`, `{"parts":[]}`, `{"parts":[{"kind":"video","video":"x"}]}`, `[[{"kind":"text","text":"x"}]]`} {
		r, err := p.rpc(ctx, wire.Add, params)
		if err := refusal(r, err, wire.CodeParams); err != nil {
			return fmt.Errorf("params %s: %w", params, err)
		}
		if r.Error.Message != "invalid_request" || r.Error.Detail() == "" {
			return fmt.Errorf("params %s: message %q and detail %q, want invalid_request and a text", params, r.Error.Message, r.Error.Detail())
		}
	}
	return nil
}

func checkRefused(ctx context.Context, p *probe) error {
	if err := p.serves(wire.Add); err != nil {
		return err
	}
	if p.target.Fixture.Refused == nil {
		return skip("the fixture has no refused")
	}
	r, err := p.rpc(ctx, wire.Add, string(p.target.Fixture.Refused))
	if err := refusal(r, err, wire.CodeHandler); err != nil {
		return err
	}
	if r.Error.DataCode() != wire.AddFailed {
		return fmt.Errorf("data.code %q, want %q", r.Error.DataCode(), wire.AddFailed)
	}
	return nil
}

func checkGet(ctx context.Context, p *probe) error {
	if err := p.serves(wire.Get); err != nil {
		return err
	}
	r, err := p.rpc(ctx, wire.Get, "")
	return partsOf(r, err)
}

// partsOf is an error unless a result is a list of parts without null members.
func partsOf(r wire.Response, err error) error {
	if err := fine(r, err); err != nil {
		return err
	}
	if _, err := wire.ParseParts(r.Result); err != nil {
		return err
	}
	var raw struct {
		Parts []map[string]json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal(r.Result, &raw); err != nil {
		return err
	}
	for i, part := range raw.Parts {
		var file map[string]json.RawMessage
		if f := part["file"]; f != nil && json.Unmarshal(f, &file) != nil {
			return fmt.Errorf("parts[%d].file is no object", i)
		}
		for _, m := range []map[string]json.RawMessage{part, file} {
			for k, v := range m {
				if string(v) == "null" {
					return fmt.Errorf("parts[%d] holds %s: null", i, k)
				}
			}
		}
	}
	return nil
}

// The address of this grant leads nowhere: servers may fail to upload, but must not call the request invalid.
const canary = "canary-7d1f"

func grant() map[string]any {
	return map[string]any{
		"root_path": "conform/" + canary, "expires_at": time.Now().UTC().Add(time.Hour).Format(time.RFC3339), "max_objects": 1, "max_object_bytes": 1 << 20, "max_total_bytes": 1 << 20,
		"write": map[string]any{"kind": wire.KindPost, "url": "https://127.0.0.1:9/" + canary, "fields": map[string]string{"policy": canary}, "path_field": "key", "file_field": "file"},
	}
}

func namespaceParams(g map[string]any) (string, error) {
	b, err := json.Marshal(map[string]any{"write_namespace": g})
	return string(b), err
}

func checkNamespace(ctx context.Context, p *probe) error {
	if p.card.Extension(wire.URNDataObjects) == nil {
		return skip("the card doesn't offer " + wire.URNDataObjects)
	}
	params, err := namespaceParams(grant())
	if err != nil {
		return err
	}
	r, err := p.rpc(ctx, wire.Get, params)
	if err != nil {
		return err
	}
	if r.Error != nil { // the store can't be reached, which the environment may call a failed get
		if r.Error.Code != wire.CodeHandler || r.Error.DataCode() != wire.GetFailed {
			return fmt.Errorf("error %d %q, want parts, or %d with %s as the store of the grant can't be reached", r.Error.Code, r.Error.Message, wire.CodeHandler, wire.GetFailed)
		}
		if strings.Contains(r.Error.Message, canary) {
			return errors.New("the error tells a value of the grant")
		}
		return nil
	}
	return partsOf(r, nil)
}

func checkBadNamespace(ctx context.Context, p *probe) error {
	if p.card.Extension(wire.URNDataObjects) == nil {
		return skip("the card doesn't offer " + wire.URNDataObjects)
	}
	for _, c := range []struct {
		name   string
		change func(map[string]any)
	}{
		{"an absolute root", func(g map[string]any) { g["root_path"] = "/" + canary }},
		{"an unknown field", func(g map[string]any) { g["more"] = canary }},
		{"a number as text", func(g map[string]any) { g["max_objects"] = "1" }},
		{"no limit at all", func(g map[string]any) { g["max_objects"] = 0 }},
		{"a time not in UTC", func(g map[string]any) { g["expires_at"] = "2100-01-02T03:04:05+02:00" }},
		{"an address by http", func(g map[string]any) { g["write"].(map[string]any)["url"] = "http://127.0.0.1:9/" + canary }},
		{"no policy", func(g map[string]any) { delete(g, "write") }},
	} {
		g := grant()
		c.change(g)
		params, err := namespaceParams(g)
		if err != nil {
			return err
		}
		r, err := p.rpc(ctx, wire.Get, params)
		if err := refusal(r, err, wire.CodeParams); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if strings.Contains(r.Error.Message+string(r.Error.Data), canary) {
			return fmt.Errorf("%s: the error tells a value of the grant", c.name)
		}
	}
	return nil
}

func checkIgnoredNamespace(ctx context.Context, p *probe) error {
	if p.card.Extension(wire.URNDataObjects) != nil {
		return skip("the card offers " + wire.URNDataObjects)
	}
	if err := p.serves(wire.Get); err != nil {
		return err
	}
	params, err := namespaceParams(grant())
	if err != nil {
		return err
	}
	r, err := p.rpc(ctx, wire.Get, params)
	return partsOf(r, err)
}

func checkUnknownMethod(ctx context.Context, p *probe) error {
	methods := []string{"data/nothing"}
	for _, m := range wire.Operations() {
		if !p.card.Serves(m) {
			methods = append(methods, m)
		}
	}
	for _, m := range methods {
		r, err := p.rpc(ctx, m, "{}")
		if err := refusal(r, err, wire.CodeMethod); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

func checkNoRequest(ctx context.Context, p *probe) error {
	for _, c := range []struct {
		body, id string
		code     int
	}{
		{`{bad`, "null", wire.CodeParse},
		{``, "null", wire.CodeRequest},
		{`[{"jsonrpc":"2.0","id":1,"method":"data/get"}]`, "null", wire.CodeRequest},
		{`{"jsonrpc":"1.0","id":"a","method":"data/get"}`, `"a"`, wire.CodeRequest},
		{`{"jsonrpc":"2.0","id":7}`, "7", wire.CodeRequest},
	} {
		r, err := p.post(ctx, c.body)
		if err := refusal(r, err, c.code); err != nil {
			return fmt.Errorf("body %q: %w", c.body, err)
		}
		if orNull(r.ID) != c.id {
			return fmt.Errorf("body %q: the answer's id is %s, want %s", c.body, orNull(r.ID), c.id)
		}
	}
	return nil
}
