package deploy_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/step/world"
)

// TestGoAgent: an agent written with sdk/agent works in a sandbox of its own.
func TestGoAgent(t *testing.T) {
	r := steptest.With(t, localProvider(t, nil))
	r.PutAgent("@local/talker", `command = ["agent-env", "serve", "talker"]`)
	r.PutEnv("@local/mail", "mail", serveWords)
	works(t, r)
	gone(t, r)
}

// works checks that the stored agent @local/talker reaches its environment @local/mail and its model, in a role, with its exchanges on record, and that the key
// of the model's endpoint is not where it is.
func works(t *testing.T, r *steptest.Rig) {
	t.Helper()
	const key = "sk-secret-of-the-endpoint"
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		if got := q.Header.Get("Authorization"); got != "Bearer "+key {
			t.Errorf("the endpoint is asked with %q", got)
		}
		return modeltest.Say("thought of " + q.Flat())
	})
	r.Settings.Endpoint = model.Endpoint{BaseURL: s.URL, Key: key}
	r.Settings.Default = "big"
	r.PutEnvironment("@local/seed", "mail", `{"words":["ant","bee"]}`)
	stored, err := envstore.Read(t.Context(), r.Store, "@local/mail", 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: "up", Attempt: 1, Env: stored, CallLog: filepath.Join(t.TempDir(), "calls")})
	if err != nil {
		t.Fatal(err)
	}
	d, err := envstore.ReadData(t.Context(), r.Store, "@local/seed", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Load(t.Context(), r.Store, d); err != nil {
		t.Fatal(err)
	}
	b := &agentBench{Rig: r, start: world.NewDeployAgent(r.Agents, r.Store), prompt: act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)}
	b.up("worker", `, "env_ids": ["@local/mail"], "role": "clerk"`)
	b.says("worker", "tool mail_words", "ant bee", "")
	p := b.says("worker", "think of it", "thought of", "")
	if p.Usage.Input == 0 || p.Usage.Output == 0 || p.Model != "big" || p.Trajectory == nil {
		t.Errorf("%+v", p)
	}
	vars := b.says("worker", "vars", "OPENAI_BASE_URL=http://127.0.0.1:18766/v1", "").Response
	if strings.Contains(vars, key) || strings.Contains(vars, s.URL) {
		t.Errorf("the sandbox holds what is the endpoint's:\n%s", vars)
	}
	calls, err := v.Gateway.Calls()
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if log, err := io.ReadAll(calls); err != nil || !strings.Contains(string(log), "mail_words") || !strings.Contains(string(log), `"clerk"`) {
		t.Errorf("the gateway saw %s, %v", log, err)
	}
}

// TestAgentThatIsKilled: what an agent had asked of its model when it was killed is on record to the last answer, with what that cost.
func TestAgentThatIsKilled(t *testing.T) {
	r := steptest.With(t, localProvider(t, nil))
	r.PutAgent("@local/talker", `command = ["agent-env", "serve", "talker"]`)
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		a := modeltest.Say("answer to " + q.Flat())
		a.Usage = model.Usage{Input: int64(100 + q.N), Output: int64(10 + q.N), USD: 0.25, Priced: true}
		return a
	})
	r.Settings.Endpoint = model.Endpoint{BaseURL: s.URL, Key: "k"}
	r.Settings.Default = "big"
	b := &agentBench{Rig: r, start: world.NewDeployAgent(r.Agents, r.Store), prompt: act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)}
	asked := 0
	for _, n := range []int{0, 1, 5} {
		name := fmt.Sprint("worker", n)
		b.up(name, "")
		p, err := b.ask(name, fmt.Sprint("ponder ", n), "")
		if err == nil || p.ErrorType != "agent_error" || p.ErrorCode != "died" || !strings.Contains(p.ErrorMessage, "signal 9") {
			t.Errorf("%+v %v", p, err)
		}
		in, out := int64(0), int64(0)
		for range n {
			in, out, asked = in+int64(100+asked), out+int64(10+asked), asked+1
		}
		if u := p.Usage; u.Input != in || u.Output != out || (n > 0) != (u.USD != nil) || n > 0 && *u.USD != 0.25*float64(n) {
			t.Errorf("%d answers: %+v is on record, and the endpoint gave %d and %d tokens", n, u, in, out)
		}
		if p.Trajectory == nil {
			t.Fatal("there is no trajectory")
		}
		text := string(b.Read(p.Trajectory.ATIF))
		for i := range n {
			if !strings.Contains(text, fmt.Sprint("thought ", i)) {
				t.Errorf("thought %d is missing:\n%s", i, text)
			}
		}
	}
	if len(s.Asked()) != asked {
		t.Errorf("asked %d times", len(s.Asked()))
	}
	gone(t, r)
}
