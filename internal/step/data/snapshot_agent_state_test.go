package data

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// left leaves a value at a list of the context document.
type left struct {
	path  string
	value any
}

func (l left) Run(_ context.Context, c *step.Call) error { return c.Out.Append(l.path, l.value) }

// TestSnapshotAgentStateWithEnv: the data of an environment goes beside the agent's own, and what can't be exported is left out and told of.
func TestSnapshotAgentStateWithEnv(t *testing.T) {
	r, s := office(t)
	r.PutEnvironments("@local/day", map[string]string{"mail": `{"m":1}`, "calendar": `{"c":1}`})
	r.LoadEnv("@local/office", "@local/day")
	r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"hello"}]}]}`})
	a, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: "clerk"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ask(t.Context(), deploy.Prompt{Settings: deploy.Settings{Model: "scripted:@local/talk"}, Parts: []wire.Part{wire.TextPart("hi")}, Context: "c"}); err != nil {
		t.Fatal(err)
	}
	r.Must(left{step.PromptsPath, step.PromptResponse{ID: "q", Agent: "clerk", Context: "c"}}, `{"id": "p", "type": "prompt_agent", "prompt": "hi"}`)
	e := NewSnapshotAgentState(r.Store, r.Agents, r.Envs)
	save := func(env string) error {
		return r.Do(e, `{"id": "save", "type": "snapshot_agent_state", "prompt_id": "q", "agent_name": "clerk", "artifact_id": "@local/saved", "env_id": "`+env+`"}`)
	}
	files := func(version int) map[string]string {
		d, err := r.Store.Get(t.Context(), store.Artifact, "@local/saved", version)
		if err != nil {
			t.Fatal(err)
		}
		list, err := artifact.Files(d.Type, d.Body)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, f := range list {
			out[f.Path] = string(r.Read(step.Object{Digest: string(f.Digest), Size: f.Size}))
		}
		return out
	}
	if err := save("@local/office"); err != nil {
		t.Fatal(err)
	}
	got := files(1)
	if len(got) != 4 || got["services/mail.json"] != `{"m":1}` || got["services/calendar.json"] != `{"c":1}` || !strings.Contains(got[deploy.StateTrajectory], "hello") {
		t.Errorf("%v", got)
	}
	var text string
	if _, err := r.View().Get(ServicesPath, &text); err != nil {
		t.Fatal(err)
	}
	var urls map[string]string
	if err := json.Unmarshal([]byte(text), &urls); err != nil || len(urls) != 2 || !strings.HasPrefix(urls["mail"], "object:sha256:") {
		t.Errorf("%q: %v", text, err)
	}
	s.Refuse("calendar")
	if err := save("@local/office"); err != nil {
		t.Fatal(err)
	}
	if got := files(2); len(got) != 3 || got["services/mail.json"] != `{"m":1}` || !strings.Contains(r.Log(), "left out of the snapshot") {
		t.Errorf("%v\n%s", got, r.Log())
	}
	if err := save("@local/none"); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
}
