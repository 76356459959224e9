package act_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/internal/trajectory/live"
)

// prompting is a bench with an agent without environments.
func prompting(t *testing.T) (*steptest.Rig, *act.PromptAgent) {
	t.Helper()
	r := steptest.New(t, fake.Options{})
	if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent}); err != nil {
		t.Fatal(err)
	}
	return r, act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)
}

// response is the last one.
func response(t *testing.T, r *steptest.Rig) step.PromptResponse {
	t.Helper()
	all := r.View().List(step.PromptsPath)
	if len(all) == 0 {
		t.Fatal("no response was kept")
	}
	var p step.PromptResponse
	if err := json.Unmarshal(all[len(all)-1], &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// atif is the trajectory of a response, which has to be valid.
func atif(t *testing.T, r *steptest.Rig, p step.PromptResponse) *trajectory.Trajectory {
	t.Helper()
	if p.Trajectory == nil {
		t.Fatalf("no trajectory: %+v", p)
	}
	doc, err := trajectory.Parse(r.Read(p.Trajectory.ATIF))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestPromptScripted(t *testing.T) {
	r, e := prompting(t)
	r.PutFile("@local/b/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"I look.","calls":[{"tool":"nosuch"}]},{"say":"It is 42."},{"say":"As I said."}]}]}`})
	r.Must(e, `{"id":"p","type":"prompt_agent","prompt":"What is it?","prompt_id":"q","context_id":"c","model":"scripted:@local/b/talk"}`)
	p := response(t, r)
	if p.ID != "q" || p.Response != "It is 42." || p.Model != "scripted:@local/b/talk" || p.ToolCalls != 1 || p.Context != "c" || p.ErrorType != "" {
		t.Errorf("%+v", p)
	}
	doc := atif(t, r, p)
	if n := len(doc.Steps); n != 3 || doc.Steps[2].Message.Text != "It is 42." || !strings.Contains(string(doc.Agent.Extra), `"scripted":true`) || doc.Steps[1].Observation == nil {
		t.Errorf("%d steps: %+v", n, doc)
	}
	// The conversation goes on where it was.
	r.Must(e, `{"id":"p2","type":"prompt_agent","prompt":"Sure?","context_id":"c","model":"scripted:@local/b/talk"}`)
	if p := response(t, r); p.Response != "As I said." || p.ID == "" {
		t.Errorf("%+v", p)
	}
	// An answer that the script lacks is the agent's failure, kept with what happened.
	err := r.Do(e, `{"id":"p3","type":"prompt_agent","prompt":"Really?","context_id":"c","model":"scripted:@local/b/talk"}`)
	if got := steptest.ErrorType(err); got != "agent_error" || !step.IsKept(err) {
		t.Errorf("%s: %v", got, err)
	}
	if p := response(t, r); p.Step != "p3" || p.ErrorType != "agent_error" || len(atif(t, r, p).Steps) == 0 {
		t.Errorf("%+v", p)
	}
}

func TestPromptErrors(t *testing.T) {
	r, e := prompting(t)
	for src, want := range map[string]string{
		`{"id":"p","type":"prompt_agent","prompt":"x","agent_name":"nosuch"}`:            "NotFoundError",
		`{"id":"p","type":"prompt_agent","prompt":"x","model":"scripted:@local/b/none"}`: "ModelError",
		`{"id":"p","type":"prompt_agent","prompt":"x","model":"m"}`:                      "infra: ModelError",
		`{"id":"p","type":"prompt_agent","prompt":"x"}`:                                  "infra: ModelError",
	} {
		if err := r.Do(e, src); steptest.ErrorType(err) != want {
			t.Errorf("%s: %s: %v", src, steptest.ErrorType(err), err)
		}
	}
}

// endpoint is a bench whose models are those of a fake endpoint, asked without long waits.
func endpoint(t *testing.T, play func(modeltest.Asked) modeltest.Answer) (*steptest.Rig, *act.PromptAgent) {
	t.Helper()
	srv := modeltest.New(t, play)
	r := steptest.WithPatience(t, fake.Options{}, model.Patience{Tries: 4, First: time.Millisecond, Total: 20 * time.Second})
	r.Settings = source.Settings{Default: "m", Endpoint: model.Endpoint{
		Dialect: model.OpenAI, BaseURL: srv.URL, Key: canary, Prices: map[string]model.Price{"m": {Input: 1, Output: 10}},
	}}
	r.Redact.Add(canary)
	if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent}); err != nil {
		t.Fatal(err)
	}
	return r, act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)
}

const (
	canary = "sk-canary-0123456789"
	ask    = `{"id":"p","type":"prompt_agent","prompt":"go","timeout_seconds":30}`
)

// TestPromptFaults: faults of the endpoint are waited out, or make the run infra_failed; they never become an answer, and the key is nowhere.
func TestPromptFaults(t *testing.T) {
	good := modeltest.Say("done")
	status := func(n int, after string) modeltest.Answer {
		return modeltest.Answer{Status: n, Text: "no", RetryAfter: after}
	}
	badCall := modeltest.Call("c1", "bash", `{"command":`)
	for name, tt := range map[string]struct {
		first []modeltest.Answer // then good
		want  string
	}{
		"none":               {nil, "none"},
		"429 with a wait":    {[]modeltest.Answer{status(429, "0.01")}, "none"},
		"429 without":        {[]modeltest.Answer{status(429, ""), status(429, "")}, "none"},
		"5xx":                {[]modeltest.Answer{status(500, ""), status(503, "")}, "none"},
		"cut stream":         {[]modeltest.Answer{{Response: good.Response, CutAfter: 1}}, "none"},
		"ended early":        {[]modeltest.Answer{{Response: good.Response, EndAfter: 1}}, "none"},
		"malformed call":     {[]modeltest.Answer{badCall}, "none"},
		"the key is refused": {[]modeltest.Answer{status(401, "")}, "infra: ModelError"},
		"down":               {[]modeltest.Answer{status(500, ""), status(500, ""), status(500, ""), status(500, "")}, "infra: ModelError"},
		"asked wrongly":      {[]modeltest.Answer{status(400, "")}, "agent_error"},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
				if q.N < len(tt.first) {
					return tt.first[q.N]
				}
				return good
			})
			err := r.Do(e, ask)
			if got := steptest.ErrorType(err); got != tt.want {
				t.Fatalf("%s: %v", got, err)
			}
			p := response(t, r)
			doc, _ := json.Marshal(atif(t, r, p))
			all, _ := json.Marshal(p)
			if text := string(doc) + string(all) + r.Log(); strings.Contains(text, canary) {
				t.Errorf("the key is in %s", text)
			}
			if tt.want == "none" && (p.Response != "done" || p.Usage.USD == nil || r.Spent().OutputTokens == 0) {
				t.Errorf("%+v, spent %+v", p, r.Spent())
			}
			if tt.want != "none" && (p.Response != "" || p.ErrorType == "") {
				t.Errorf("a failure looks like an answer: %+v", p)
			}
		})
	}
}

// TestPromptNeverAnswers: an agent that never answers is ended by the step's limit, and what it did until then is kept; a run that is cancelled too.
func TestPromptNeverAnswers(t *testing.T) {
	r, e := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N == 0 {
			return modeltest.Call("c1", "nosuch", "{}")
		}
		return modeltest.Answer{Hang: true}
	})
	err := r.Do(e, `{"id":"p","type":"prompt_agent","prompt":"go","timeout_seconds":0.2}`)
	if got := steptest.ErrorType(err); got != "agent_error" || !strings.Contains(err.Error(), "timeout") {
		t.Fatalf("%s: %v", got, err)
	}
	if doc := atif(t, r, response(t, r)); len(doc.Steps) != 2 || len(doc.Steps[1].ToolCalls) != 1 {
		t.Errorf("%+v", doc.Steps)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.DoCtx(ctx, e, ask); !errors.Is(err, context.DeadlineExceeded) || !step.IsKept(err) {
		t.Error(err)
	}
}

// TestPromptFloods: an agent that goes on for ever ends at its bound.
func TestPromptFloods(t *testing.T) {
	big := strings.Repeat("x", 1<<16)
	r, e := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		return modeltest.Call(fmt.Sprint("c", q.N), "nosuch", `{"text":"`+big+`"}`)
	})
	err := r.Do(e, `{"id":"p","type":"prompt_agent","prompt":"go","max_turns":5}`)
	if got := steptest.ErrorType(err); got != "agent_error" || !strings.Contains(err.Error(), "after 5 answers") {
		t.Fatalf("%s: %v", got, err)
	}
	if p := response(t, r); p.ToolCalls != 5 || p.ErrorCode != "max_turns" {
		t.Errorf("%+v", p)
	}
}

// TestPromptStructured: an answer of a schema is kept apart; one that is none after repairs is the agent's failure.
func TestPromptStructured(t *testing.T) {
	answers := []string{"no json", `{"n":1}`, "no", "no", "no"}
	r, e := endpoint(t, func(q modeltest.Asked) modeltest.Answer { return modeltest.Say(answers[q.N]) })
	const src = `{"id":"p","type":"prompt_agent","prompt":"go","output_format":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}`
	r.Must(e, src)
	if p := response(t, r); string(p.Structured) != `{"n":1}` {
		t.Errorf("%+v", p)
	}
	if err := r.Do(e, src); steptest.ErrorType(err) != "agent_error" {
		t.Error(err)
	}
}

// TestLiveRecord: what happened is in a file while the agent works, and the file goes with the agent.
func TestLiveRecord(t *testing.T) {
	var path string
	var seen []trajectory.Event
	var r *steptest.Rig
	r, e := endpoint(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N == 0 {
			return modeltest.Call("c1", "nosuch", "{}")
		}
		path = r.Agents.RecordPath(steptest.Run, "p", 1, step.DefaultAgent)
		seen, _ = live.Read(path)
		return modeltest.Say("done")
	})
	r.Must(e, ask)
	if len(seen) != 3 || seen[2].Kind != trajectory.Returned {
		t.Errorf("%+v", seen)
	}
	if _, err := r.Agents.Remove(t.Context(), steptest.Run, step.DefaultAgent); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
}

// TestManyPrompts: many prompts at once lose nothing.
func TestManyPrompts(t *testing.T) {
	n := 100
	if soak {
		n = 1000
	}
	r, e := endpoint(t, func(modeltest.Asked) modeltest.Answer {
		a := modeltest.Say("done")
		a.Delay = 50 * time.Millisecond
		return a
	})
	began := time.Now()
	var wg sync.WaitGroup
	var lost atomic.Int32
	for i := range n {
		wg.Go(func() {
			c := &step.Call{Run: steptest.Run, Step: fmt.Sprint("p", i), Attempt: 1, Trial: 1, Doc: r.Doc(ask), State: r.View(), Out: &step.Diff{}, Log: slog.New(slog.DiscardHandler)}
			if err := e.Run(t.Context(), c); err != nil || len(c.Out.Ops()) != 2 { // the response, and the model
				lost.Add(1)
				t.Log(err)
			}
		})
	}
	wg.Wait()
	if lost.Load() > 0 {
		t.Errorf("%d of %d were lost", lost.Load(), n)
	}
	t.Logf("%d prompts took %s", n, time.Since(began).Round(time.Millisecond))
}

// TestConversation: a second agent plays the user until it is done; what both did is kept.
func TestConversation(t *testing.T) {
	r, e := prompting(t)
	if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "user", Attempt: 1, Trial: 1, Name: "human_agent"}); err != nil {
		t.Fatal(err)
	}
	r.PutFile("@local/b/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"Which day?"},{"say":"Booked for ${user}."}]}]}`})
	r.PutFile("@local/b/user", steptest.File{Path: "u.json", Text: `{"variants":[{"turns":[{"say":"{\"message\":\"Monday\",\"done\":false}"},{"say":"{\"message\":\"\",\"done\":true}"}]}]}`})
	const src = `{"id":"p","type":"prompt_agent","prompt":"Book it.","model":"scripted:@local/b/talk","user_model":"scripted:@local/b/user","max_conversation_turns":5`
	r.Must(e, src+`}`)
	p := response(t, r)
	if len(p.Turns) != 2 || p.Turns[1].Message != "Monday" || p.Response != "Booked for Monday." || p.Turns[1].User == nil || len(p.URLs) != 2 {
		t.Errorf("%+v", p)
	}
	// A user's agent that says nothing usable is no failure of the agent.
	r.PutFile("@local/b/mute", steptest.File{Path: "m.json", Text: `{"variants":[{"turns":[{"say":"hm"},{"say":"hm"},{"say":"hm"}]}]}`})
	if err := r.Do(e, strings.Replace(src, "b/user", "b/mute", 1)+`}`); steptest.ErrorType(err) != "infra: UserAgentError" {
		t.Error(err)
	}
}
