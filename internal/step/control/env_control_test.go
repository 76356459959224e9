package control

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step/steptest"
)

func mailRig(t *testing.T) (*steptest.Rig, *steptest.EnvServer) {
	s := &steptest.EnvServer{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": s.Program()}})
	r.PutEnv("@local/mail", "mail", `command = ["server"]`)
	r.DeployEnv("@local/mail", "up")
	return r, s
}

func TestModifyEnvToolAccess(t *testing.T) {
	r, _ := mailRig(t)
	e := NewModifyEnvToolAccess(r.Envs)
	r.Must(e, `{"id": "m", "type": "modify_env_tool_access", "env_id": "@local/mail", "action": "disable", "role": "solver", "tools": ["send", "read"]}`)
	r.Must(e, `{"id": "m2", "type": "modify_env_tool_access", "env_id": "@local/mail", "action": "enable", "role": "solver", "tools": ["read"]}`)
	v, err := r.Envs.Env(steptest.Run, "@local/mail", "")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := json.Marshal(v.Gateway.Access()["solver"])
	if err != nil || !strings.Contains(string(rules), "send") {
		t.Errorf("%s %v", rules, err)
	}
	if n := len(r.View().List(AccessPath)); n != 2 {
		t.Errorf("%d changes", n)
	}
	if err := r.Do(e, `{"id": "m", "type": "modify_env_tool_access", "env_id": "@local/x", "action": "disable", "role": "a", "tools": ["*"]}`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}

func TestApplyServerConfig(t *testing.T) {
	r, s := mailRig(t)
	e := NewApplyServerConfig(r.Envs)
	apply := func(directive, more string) error {
		return r.Do(e, `{"id": "a", "type": "apply_server_config", "env_id": "@local/mail", "directives": [`+directive+`]`+more+`}`)
	}
	if err := apply(`{"service": "*", "uri": "urn:agentenv:set-errors/v1", "args": {"rate": 0.5}}`, ""); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.Calls(), `mail set_errors {"rate":0.5}`) {
		t.Error(s.Calls())
	}
	if err := apply(`{"service": "mail", "uri": "urn:agentenv:set-errors/v1", "args": {"rate": 2}}`, ""); steptest.ErrorType(err) != "ServerConfigError" || !strings.Contains(err.Error(), "invalid_params: rate is at most 1") {
		t.Error(err)
	}
	if err := apply(`{"service": "mail", "uri": "urn:x:none/v1"}`, ""); steptest.ErrorType(err) != "ServerConfigError" || !strings.Contains(err.Error(), "is not advertised") {
		t.Error(err)
	}
	if err := apply(`{"service": "mail", "uri": "urn:x:none/v1"}`, `, "tolerate_unadvertised": true`); err != nil {
		t.Error(err)
	}
	if err := apply(`{"service": "fax", "uri": "urn:agentenv:set-errors/v1"}`, ""); err == nil || !strings.Contains(err.Error(), "no server 'fax'; it has 'mail'") {
		t.Error(err)
	}
	if a, b := len(r.View().List(ConfigPath)), len(r.View().List(SkippedPath)); a != 1 || b != 1 {
		t.Errorf("%d changed, %d skipped", a, b)
	}
}

func TestSyncEnvClock(t *testing.T) {
	r, s := mailRig(t)
	e := NewSyncEnvClock(r.Envs)
	for range 2 { // a server is told again, by the same door
		r.Must(e, `{"id": "c", "type": "sync_env_clock", "env_id": "@local/mail", "virtual_time": "2030-01-02T03:04:05Z", "virtual_seconds_per_real_second": 0}`)
	}
	if n := len(slices.DeleteFunc(s.Calls(), func(c string) bool {
		return c != `mail sync_time {"env_get_time_url":"http://127.0.0.1:18764/clock/time"}`
	})); n != 2 {
		t.Error(s.Calls())
	}
	b, err := r.Deploy.Box(t.Context(), steptest.Run, r.Deploy.Live(steptest.Run)[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := b.Dial(t.Context(), "tcp", "127.0.0.1:18764")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /clock/time HTTP/1.0\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n := 0
	for {
		k, err := conn.Read(answer[n:])
		if n += k; err != nil {
			break
		}
	}
	if !strings.Contains(string(answer[:n]), "2030-01-02T03:04:05") {
		t.Errorf("%s", answer[:n])
	}
}

func TestRegisterEnvTriggers(t *testing.T) {
	r, _ := mailRig(t)
	e := NewRegisterEnvTriggers(r.Envs, r.Agents)
	clock := NewSyncEnvClock(r.Envs)
	r.Must(clock, `{"id": "c", "type": "sync_env_clock", "env_id": "@local/mail", "virtual_time": "2030-01-02T03:04:05Z"}`)
	trigger := `{"id": "later", "when": {"type": "time", "at": "%s"}, "actions": [{"type": "permission", "role": "solver", "action": "disable", "tools": ["*"]}]}`
	if err := r.Do(e, `{"id": "t", "type": "register_env_triggers", "env_id": "@local/mail", "triggers": [`+strings.Replace(trigger, "%s", "2031-01-02T03:04:05Z", 1)+
		`], "await_fired": ["later"], "await_timeout_seconds": 0.3}`); steptest.ErrorType(err) != "TimeoutError" || !strings.Contains(err.Error(), "have not fired: later") {
		t.Errorf("%s %v", steptest.ErrorType(err), err)
	}
	soon := strings.Replace(strings.Replace(trigger, "later", "soon", 1), "%s", "2030-01-02T03:04:05Z", 1)
	if err := r.Do(e, `{"id": "t2", "type": "register_env_triggers", "env_id": "@local/mail", "triggers": [`+soon+`], "await_fired": ["soon"], "await_timeout_seconds": 10}`); err != nil {
		t.Error(err)
	}
	if err := r.Do(e, `{"id": "t3", "type": "register_env_triggers", "env_id": "@local/mail", "triggers": [`+strings.Replace(soon, "\"time\"", "\"action\"", 1)+`]}`); steptest.ErrorType(err) != "TriggerError" {
		t.Error(err)
	}
}
