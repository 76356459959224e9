package act_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/sdk/agent"
)

// formatted is what an agent takes that plays a user.
type formatted struct {
	OutputFormat map[string]any `json:"output_format"`
	Model        string         `json:"model"`
}

// TestUserByURL: an agent elsewhere plays the user of a conversation, in a conversation of its own, and is let go of when that has ended.
func TestUserByURL(t *testing.T) {
	for name, tt := range map[string]struct {
		options []agent.Option
		says    []agent.Result
		want    string // type of the error; "" for none
		said    string // by the user
		turns   int
	}{
		"an object": {[]agent.Option{agent.WithConfig(formatted{})}, []agent.Result{
			{Structured: json.RawMessage(`{"message":"and then?","done":false}`)}, agent.Text(`{"message":"","done":true}`),
		}, "", "and then?", 2},
		"without a format": {nil, []agent.Result{agent.Text("and then?"), agent.Text("and after that?")}, "", "and then?", 3},
		"no object":        {[]agent.Option{agent.WithConfig(formatted{})}, []agent.Result{agent.Text("hm")}, "infra: UserAgentError", "", 1},
		"it fails":         {nil, nil, "infra: UserAgentError", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := prompting(t)
			r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"one"},{"say":"two"},{"say":"three"}]}]}`})
			var mu sync.Mutex
			var heard, contexts []string
			u := agent.New("user", func(_ context.Context, turn *agent.Turn) (agent.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				n := len(heard)
				heard, contexts = append(heard, turn.Text()), append(contexts, turn.ContextID)
				if n >= len(tt.says) {
					return agent.Result{}, agent.Fail("user.gone", "nothing more to say")
				}
				return tt.says[n], nil
			}, tt.options...)
			h, err := u.Handler()
			if err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(h)
			defer web.Close()
			err = r.Do(e, `{"id":"p","type":"prompt_agent","prompt":"go","model":"scripted:@local/talk","max_conversation_turns":3,"poll_interval_seconds":0.01,"user_a2a_url":"`+web.URL+`"}`)
			want := tt.want
			if want == "" {
				want = "none"
			}
			if got := steptest.ErrorType(err); got != want {
				t.Fatalf("%s: %v", got, err)
			}
			p := response(t, r)
			if len(p.Turns) != tt.turns || tt.said != "" && p.Turns[1].Message != tt.said || !strings.HasPrefix(p.UserAgent, "the user of p ") {
				t.Errorf("%+v", p)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(heard) == 0 || heard[0] != "one" || contexts[0] == p.Context || contexts[0] != contexts[len(contexts)-1] {
				t.Errorf("heard %q in %q, the prompt's is %q", heard, contexts, p.Context)
			}
			if live := r.Agents.Live(steptest.Run); len(live) != 1 || live[0].Name != step.DefaultAgent {
				t.Errorf("%d agents are left", len(live))
			}
		})
	}
	t.Run("nobody is there", func(t *testing.T) {
		r, e := prompting(t)
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"one"}]}]}`})
		err := r.Do(e, `{"id":"p","type":"prompt_agent","prompt":"go","model":"scripted:@local/talk","max_conversation_turns":2,"user_agent_timeout_seconds":0.2,"user_a2a_url":"`+gone.URL+`"}`)
		if got := steptest.ErrorType(err); !strings.HasPrefix(got, "infra: ") {
			t.Errorf("%s: %v", got, err)
		}
	})
	_, e := prompting(t)
	r := steptest.New(t, fake.Options{})
	got := steptest.Texts(e.Preflight(t.Context(), r.Doc(`{"id":"p","type":"prompt_agent","prompt":"go","max_conversation_turns":2,"user_a2a_url":"ftp://x"}`), step.Plan{Models: map[string]string{"agent": "scripted:@local/x", "user": "scripted:@local/x"}}))
	if !strings.Contains(got, "user_a2a_url: an agent's address is one of http or https") {
		t.Error(got)
	}
}

// TestSnapshotsOfEnv: an environment's data is kept beside the agent's state at every snapshot; the last that can't be had is the step's failure, with the reply.
func TestSnapshotsOfEnv(t *testing.T) {
	s := &steptest.EnvServer{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{"server": s.Program()}})
	r.PutEnv("@local/mail", "mail", `command = ["server"]`)
	r.DeployEnv("@local/mail", "up")
	r.PutEnvironment("@local/day", "mail", `{"m":1}`)
	r.LoadEnv("@local/mail", "@local/day")
	if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent}); err != nil {
		t.Fatal(err)
	}
	e := act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)
	r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"one"}]}]}`})
	ask := func(id, env string) error {
		return r.Do(e, `{"id":"`+id+`","type":"prompt_agent","prompt":"go","model":"scripted:@local/talk","snapshot_config":{"env_id":"`+env+`"}}`)
	}
	if err := ask("p", "@local/none"); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
	if err := ask("p", "@local/mail"); err != nil {
		t.Fatal(err)
	}
	rows := snapshots(t, r)
	if len(rows) != 1 || !rows[0].Final || rows[0].Status != step.SnapshotOK || rows[0].EnvVersion != 1 || rows[0].Env != steptest.Run+"-p-mail" {
		t.Fatalf("%+v", rows)
	}
	r.PutEnvironment("@local/night", "mail", `{"m":2}`)
	r.LoadEnv("@local/mail", "@local/night")
	if r.LoadEnv("@local/mail", rows[0].Env); s.Held("mail") != `{"m":1}` {
		t.Errorf("%q was kept", s.Held("mail"))
	}
	s.Refuse("mail")
	err := ask("p2", "@local/mail")
	rows = snapshots(t, r)
	if steptest.ErrorType(err) != "SnapshotError" || !step.IsKept(err) || len(rows) != 2 || rows[1].Status != step.SnapshotPartial || rows[1].Reason == "" || response(t, r).Response != "one" {
		t.Errorf("%s: %v\n%+v", steptest.ErrorType(err), err, rows)
	}
}

func snapshots(t *testing.T, r *steptest.Rig) (out []step.AgentSnapshot) {
	t.Helper()
	for _, raw := range r.View().List(step.AgentSnapshotsPath) {
		var row step.AgentSnapshot
		if err := json.Unmarshal(raw, &row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}
