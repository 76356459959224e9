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

// agentCall finds a method of an agent's extension; a skip when the card doesn't offer it.
func (p *probe) agentCall(uri, method string) (wire.Call, error) {
	if p.card.Extension(uri) == nil {
		return wire.Call{}, skip("the card doesn't offer " + uri)
	}
	c, err := p.find(uri, method)
	if err != nil {
		return c, skip(err.Error())
	}
	return c, nil
}

// try calls a method with a body and is an error unless it answers this status.
func (p *probe) try(ctx context.Context, c wire.Call, body string, want int) (response, error) {
	resp, err := p.do(ctx, c.Verb, c.Path, body, "Content-Type", "application/json")
	if err == nil && resp.status != want {
		err = fmt.Errorf("%s: status %d, want %d", body, resp.status, want)
	}
	return resp, err
}

// tries calls a method with bodies that must all answer one status.
func (p *probe) tries(ctx context.Context, c wire.Call, want int, bodies ...string) error {
	for _, b := range bodies {
		if _, err := p.try(ctx, c, b, want); err != nil {
			return err
		}
	}
	return nil
}

func checkAgentConfig(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNAgentConfig, "set")
	if err != nil {
		return err
	}
	return errors.Join(p.tries(ctx, c, http.StatusBadRequest, `{"conform_unknown":1}`, `{"timeout_seconds":"soon"}`, `{"name":" "}`), p.tries(ctx, c, http.StatusOK, `{}`))
}

func checkAgentSecret(ctx context.Context, p *probe) error {
	set, err := p.agentCall(wire.URNAgentConfig, "set")
	if err != nil {
		return err
	}
	get, err := p.agentCall(wire.URNAgentConfig, "get")
	if err != nil {
		return err
	}
	field := p.target.Fixture.SecretField
	if field == "" {
		return skip("the fixture has no secret_field")
	}
	body, err := json.Marshal(map[string]string{field: canary})
	if err != nil {
		return err
	}
	if _, err := p.try(ctx, set, string(body), http.StatusOK); err != nil {
		return err
	}
	resp, err := p.try(ctx, get, "", http.StatusOK)
	if err != nil {
		return err
	}
	var out struct {
		Config map[string]any `json:"config"`
	}
	if json.Unmarshal([]byte(resp.body), &out) != nil || out.Config[field] != "***" || strings.Contains(resp.body, canary) {
		return fmt.Errorf("config %s, want %s to be ***", short(resp.body), field)
	}
	return nil
}

func checkAgentServers(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNMCPConfig, "add")
	if err != nil {
		return err
	}
	p.sent++
	name := fmt.Sprintf("conform%d", p.sent)
	one := fmt.Sprintf(`{"url":"http://127.0.0.1:9/%s","name":%q}`, name, name)
	if err := p.tries(ctx, c, http.StatusBadRequest, `{}`, `{"url":" "}`, `{"url":"http://127.0.0.1:9/x","more":1}`); err != nil {
		return err
	}
	if err := p.tries(ctx, c, http.StatusOK, one); err != nil {
		return err
	}
	return p.tries(ctx, c, http.StatusConflict, one, fmt.Sprintf(`{"url":"http://127.0.0.1:9/other","name":%q}`, name))
}

func checkAgentSkills(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNSkillConfig, "add")
	if err != nil {
		return err
	}
	file := func(path, scheme string) string {
		return fmt.Sprintf(`{"name":"conform-b","description":"d","skill_bundle":{"max_total_bytes":10,"files":[{"path":%q,"object":{"media_type":"text/plain","max_bytes":10,"read":{"kind":"http-get","url":%q,"expires_at":"2100-01-01T00:00:00Z"}}}]}}`,
			path, scheme+"://127.0.0.1:9/x")
	}
	if err := p.tries(ctx, c, http.StatusBadRequest, `{"name":"no spaces","description":"d","skill_md":"# x"}`, file("SKILL.md", "http"), file("OTHER.md", "https")); err != nil {
		return err
	}
	const skill = `{"name":"conform-skill","description":"d","skill_md":"---\nname: conform-skill\ndescription: d\n---\n# x"}`
	if err := p.tries(ctx, c, http.StatusOK, skill); err != nil {
		return err
	}
	return p.tries(ctx, c, http.StatusConflict, skill)
}

func checkRunningTrajectory(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNTrajectory, "get")
	if err != nil {
		return err
	}
	slow := p.target.Fixture.SlowPrompt
	if slow == "" {
		return skip("the fixture has no slow_prompt")
	}
	t, err := p.send(ctx, slow, "")
	if err != nil {
		return err
	}
	err = p.tries(ctx, c, http.StatusNotFound, fmt.Sprintf(`{"task_id":%q}`, t.ID))
	if p.hasCursor(c) {
		resp, rerr := p.try(ctx, c, fmt.Sprintf(`{"task_id":%q,"after":0}`, t.ID), http.StatusOK)
		if rerr == nil && !strings.Contains(resp.body, `"running"`) && !strings.Contains(resp.body, `"pending"`) {
			rerr = fmt.Errorf("page %s, want state running", short(resp.body))
		}
		err = errors.Join(err, rerr)
	}
	_, cerr := p.a2a(ctx, "tasks/cancel", map[string]any{"id": t.ID})
	return errors.Join(err, cerr)
}

// hasCursor tells whether the agent serves trajectories while they grow.
func (p *probe) hasCursor(c wire.Call) bool { return strings.Contains(string(c.Request), `"after"`) }

func checkCursors(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNTrajectory, "get")
	if err != nil {
		return err
	}
	if !p.hasCursor(c) {
		return skip("the card doesn't offer cursors")
	}
	t, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if _, err := p.finish(ctx, t.ID); err != nil {
		return err
	}
	for _, rest := range []string{`"after":1000000`, `"after":0,"limit":0`, `"after":0,"limit":1001`, `"after":"0"`} {
		if err := p.tries(ctx, c, http.StatusBadRequest, fmt.Sprintf(`{"task_id":%q,%s}`, t.ID, rest)); err != nil {
			return err
		}
	}
	return nil
}

func checkAgentSnapshot(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNSnapshot, "save")
	if err != nil {
		return err
	}
	t, err := p.send(ctx, p.prompt(), "")
	if err != nil {
		return err
	}
	if _, err := p.finish(ctx, t.ID); err != nil {
		return err
	}
	body := func(media, expires string) string {
		return fmt.Sprintf(`{"context_id":%q,"objects":{"trajectory":{"media_type":%q,"max_bytes":1000000,"write":{"kind":"http-put","url":"https://127.0.0.1:9/x","expires_at":%q}}}}`, t.Context, media, expires)
	}
	resp, err := p.try(ctx, c, body("application/octet-stream", "2001-01-01T00:00:00Z"), http.StatusGone)
	if err != nil {
		return err
	}
	if code := wire.ReadFailure([]byte(resp.body)).Code; code != wire.CodeGrantExpired {
		return fmt.Errorf("an expired grant: code %q, want %q", code, wire.CodeGrantExpired)
	}
	return p.tries(ctx, c, http.StatusBadRequest, body("text/plain", "2100-01-01T00:00:00Z"))
}

func checkChangelog(ctx context.Context, p *probe) error {
	c, err := p.agentCall(wire.URNSnapshot, "apply-changelog")
	if err != nil {
		return err
	}
	resp, err := p.try(ctx, c, `{"increments":[]}`, http.StatusOK)
	if err != nil {
		return err
	}
	var out struct {
		Count *int `json:"count"`
	}
	if json.Unmarshal([]byte(resp.body), &out) != nil || out.Count == nil || *out.Count != 0 {
		return fmt.Errorf("answer %s, want count 0", short(resp.body))
	}
	const object = `{"media_type":"application/octet-stream","max_bytes":10,"read":{"kind":"http-get","url":"https://127.0.0.1:9/x","expires_at":"2100-01-01T00:00:00Z"}}`
	return p.tries(ctx, c, http.StatusBadRequest, `{"increments":[{"sequence":1,"object":`+object+`},{"sequence":1,"object":`+object+`}]}`)
}

func checkDecide(ctx context.Context, p *probe) error {
	register, err := p.agentCall(wire.URNTriggers, "register")
	if err != nil {
		return err
	}
	decide, err := p.agentCall(wire.URNTriggers, "decide")
	if err != nil {
		return err
	}
	p.sent++
	at := 1000 + p.sent // a turn that nobody else's triggers are about
	body := fmt.Sprintf(`{"triggers":[{"id":"conform-%d","when":{"type":"step","turn":%d},"actions":[{"type":"say","text":"now"},{"type":"end"}]}]}`, at, at)
	if _, err := p.try(ctx, register, body, http.StatusOK); err != nil {
		return err
	}
	for i, want := range []bool{true, false} {
		resp, err := p.try(ctx, decide, fmt.Sprintf(`{"turn":%d,"context_id":"conform-%d"}`, at+i, at), http.StatusOK)
		if err != nil {
			return err
		}
		if fired := strings.Contains(resp.body, `"now"`); fired != want {
			return fmt.Errorf("turn %d: %s, want fired %v", i+1, short(resp.body), want)
		}
	}
	return p.tries(ctx, decide, http.StatusBadRequest, `{"turn":0}`)
}

func checkStaging(ctx context.Context, p *probe) error {
	x := p.card.Extension(wire.URNStaging)
	if x == nil {
		return skip("the card doesn't offer " + wire.URNStaging)
	}
	params, err := wire.ParseParams(x.Params)
	if err != nil {
		return err
	}
	const id = "conform-0123456789abcdefghij"
	base := params.Endpoint
	if err := p.status(ctx, http.MethodPut, base+"/"+id+"/a/b.txt", "x", http.StatusCreated); err != nil {
		return fmt.Errorf("a good upload: %w", err)
	}
	form := "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nx\r\n--B--\r\n"
	return errors.Join(
		named("a short id", p.status(ctx, http.MethodPut, base+"/short/a.txt", "x", http.StatusNotFound)),
		named("dot segments", p.status(ctx, http.MethodPut, base+"/"+id+"/%2e%2e/a.txt", "x", http.StatusBadRequest)),
		named("another If-Match", p.status(ctx, http.MethodDelete, base+"/"+id+"/a/b.txt", "", http.StatusPreconditionFailed, "If-Match", `"00-00"`)),
		named("a form without key", p.status(ctx, http.MethodPost, base+"/"+id, form, http.StatusBadRequest, "Content-Type", "multipart/form-data; boundary=B")),
		named("PUT on a trailing slash", p.status(ctx, http.MethodPut, base+"/"+id+"/a/", "x", http.StatusMethodNotAllowed)),
		named("cleaning up", p.status(ctx, http.MethodDelete, base+"/"+id+"/", "", http.StatusNoContent)))
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
