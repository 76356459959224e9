package control

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/sdk/agent"
)

// instructions are what an agent of a box was told.
type instructions struct {
	mu    sync.Mutex
	texts []string
}

func (o *instructions) add(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.texts = append(o.texts, text)
}

func (o *instructions) all() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.texts, "|")
}

// TestTriggerExecutors: agents of the run carry out what triggers say in words, the built-in one and one that serves A2A in a box of its own.
func TestTriggerExecutors(t *testing.T) {
	env, heard := &steptest.EnvServer{}, &instructions{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{
		"server": env.Program(),
		"agent": steptest.AgentProgram(func(context.Context, *fake.Proc, *http.Client) (http.Handler, func()) {
			h, err := agent.New("cass", func(_ context.Context, turn *agent.Turn) (agent.Result, error) {
				heard.add(turn.Text())
				if strings.Contains(turn.Text(), "impossible") {
					return agent.Result{}, agent.Fail("cass.refused", "I refuse")
				}
				return agent.Text("done"), nil
			}).Handler()
			if err != nil {
				t.Error(err)
			}
			return h, nil
		}),
	}})
	r.PutEnv("@local/mail", "mail", `command = ["server"]`)
	r.PutAgent("@local/cass", `command = ["agent"]`)
	r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"as you wish"}]}]}`})
	r.Settings.Roles = map[string]string{source.Agent: "scripted:@local/talk"}
	r.DeployEnv("@local/mail", "up")
	for name, req := range map[string]deploy.AgentRequest{
		"bob/b": {Settings: deploy.Settings{Role: "persona"}}, "cass": {ID: "@local/cass", Settings: deploy.Settings{Role: "cass"}}, "mute": {},
	} {
		req.Run, req.Step, req.Attempt, req.Trial, req.Name = steptest.Run, "deploy", 1, 1, name
		if _, err := r.Agents.Deploy(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	r.Must(NewSyncEnvClock(r.Envs), `{"id": "c", "type": "sync_env_clock", "env_id": "@local/mail", "virtual_time": "2030-01-02T10:00:00Z"}`)
	e := NewRegisterEnvTriggers(r.Envs, r.Agents)
	do := func(fields string) error {
		return r.Do(e, `{"id": "t", "type": "register_env_triggers", "env_id": "@local/mail", "await_timeout_seconds": 10, `+fields+`}`)
	}
	at := `"when": {"type": "time", "at": "2030-01-02T10:00:00Z"}`
	if err := do(`"executor_agent_name": "bob/b", "executor_hours": {"bob/b": {"start": "09:00", "end": "17:00"}}, "await_fired": ["one"],
		"triggers": [{"id": "one", ` + at + `, "actions": [{"type": "nl", "instruction": "Go on."}, {"type": "nl", "instruction": "You too.", "executor": "cass"}]}]`); err != nil {
		t.Fatal(err)
	}
	if got := heard.all(); got != "You too." {
		t.Errorf("heard %q", got)
	}
	rec, err := json.Marshal(r.View().List(TriggersPath))
	if want := `[{"env_id":"@local/mail","trigger_ids":["one"],"executor_agent_name":"bob/b","executor_agent_names":["cass"]}]`; err != nil || string(rec) != want {
		t.Errorf("%s %v", rec, err)
	}
	// An executor that fails, or is gone, has the trigger fail and not the step that registered it.
	fails := `"triggers": [{"id": "%", ` + at + `, "actions": [{"type": "nl", "instruction": "It is impossible.", "executor": "cass"}]}]`
	if err := do(strings.Replace(fails, "%", "two", 1)); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		v, err := r.Envs.Env(steptest.Run, "@local/mail", "")
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v.Gateway.TriggerState())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	await := func(text string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			if strings.Contains(state(), text) {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
		t.Fatalf("%q never came: %s", text, state())
	}
	await("I refuse")
	later := strings.ReplaceAll(strings.Replace(fails, "%", "three", 1), "10:00", "11:00")
	if err := do(later); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Agents.Remove(t.Context(), steptest.Run, "cass"); err != nil {
		t.Fatal(err)
	}
	r.Must(NewSyncEnvClock(r.Envs), `{"id": "c", "type": "sync_env_clock", "env_id": "@local/mail", "virtual_time": "2030-01-02T11:00:00Z"}`)
	await("agent 'cass' is not deployed in this run")
	for fields, want := range map[string]string{
		`"executor_agent_name": "nobody", "triggers": []`:                                                 "NotFoundError: agent 'nobody' is not deployed in this run",
		`"executor_agent_name": "mute", "triggers": []`:                                                   "ValueError: agent 'mute' has no role of its own",
		`"watch_roles": ["cass"], "executor_agent_name": "bob/b", "triggers": []`:                         "TriggerError: invalid trigger: watch_roles",
		strings.ReplaceAll(fails, "%", "four"):                                                            "NotFoundError: agent 'cass' is not deployed",
		`"triggers": [{` + at + `, "actions": [{"type": "nl", "instruction": "x", "executor": "mute"}]}]`: "ValueError: agent 'mute' has no role",
	} {
		if err := do(fields); err == nil || !strings.HasPrefix(steptest.ErrorType(err)+": "+err.Error(), want) {
			t.Errorf("%s: %v; want %s", fields, err, want)
		}
	}
}
