package verify

import (
	"context"
	"errors"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/sdk/wire"
)

// fakeAgents deploys one agent that answers what a test says.
type fakeAgents struct {
	deploy.Runner
	deployed, removed []string
	prompts           []deploy.Prompt
	reply             deploy.Reply
	err               error
}

func (f *fakeAgents) Check(context.Context, []string, string, deploy.AgentRequest) error {
	return f.err
}

func (f *fakeAgents) Deploy(_ context.Context, r deploy.AgentRequest) (*deploy.Agent, error) {
	f.deployed = append(f.deployed, r.Name+" "+r.Settings.Model)
	return &deploy.Agent{Name: r.Name, ID: "judge", Runner: f}, f.err
}

func (f *fakeAgents) Agent(_, name string) (*deploy.Agent, error) {
	if name != "there" {
		return nil, deploy.ErrNoAgent
	}
	return &deploy.Agent{Name: name, Runner: f}, nil
}

func (f *fakeAgents) Remove(_ context.Context, _, name string) ([]string, error) {
	f.removed = append(f.removed, name)
	return nil, nil
}

func (f *fakeAgents) Prompt(_ context.Context, p deploy.Prompt) (deploy.Reply, error) {
	f.prompts = append(f.prompts, p)
	return f.reply, nil
}

func TestAgentsJudge(t *testing.T) {
	b := newBench(t, nil)
	f := &fakeAgents{reply: deploy.Reply{Text: verdict(1, 1), Usage: model.Usage{Input: 7, Output: 3}}}
	b.exec.o.Agents = NewDeployedJudges(f, b.judges)
	judge := func(id, more string) error {
		return b.Do(b.exec, `{"id": "`+id+`", "type": "rubrics_verifier", "prompt_id": "p", "default_model": "m", `+twoCriteria+more+`}`)
	}
	if err := judge("own", ""); err != nil {
		t.Fatal(err)
	}
	v := b.entry("own")
	if v["score"] != 1.0 || v["judge_models"].([]any)[0] != "judge with m" || v["judge_cost"].(map[string]any)["input_tokens"] != 7.0 {
		t.Errorf("%v", v)
	}
	if strings.Join(f.deployed, ",") != "judge of own m" || strings.Join(f.removed, ",") != "judge of own" {
		t.Errorf("deployed %v, removed %v", f.deployed, f.removed)
	}
	if p := f.prompts[0]; len(p.Settings.OutputFormat) == 0 || !strings.Contains(p.Parts[1].Text, "What it did") {
		t.Errorf("%+v", p)
	}
	if err := judge("theirs", `, "agent_name": "there"`); err != nil || len(f.deployed) != 1 || len(f.removed) != 1 {
		t.Errorf("%v: deployed %v, removed %v", err, f.deployed, f.removed)
	}
	if err := judge("none", `, "agent_name": "nowhere"`); steptest.ErrorType(err) != "NotFoundError" {
		t.Error(err)
	}
	f.reply = deploy.Reply{Text: "fine, 0.5"}
	if err := judge("odd", ""); err != nil || b.entry("odd")["unscored"] == nil {
		t.Errorf("%v %v", err, b.entry("odd"))
	}
	if n := len(f.prompts); n < 5 || len(f.prompts[n-1].Parts) != 5 || !strings.Contains(f.prompts[n-1].Parts[2].Text, "You answered before:\nfine, 0.5") {
		t.Errorf("asked again with %+v", f.prompts[n-1].Parts)
	}
	f.reply = deploy.Reply{ErrorType: wire.AgentError, ErrorMessage: "gave up"}
	if err := judge("failed", ""); steptest.ErrorType(err) != "infra: JudgeError" {
		t.Error(err)
	}
	f.err = errors.New("no such agent here")
	d := b.Doc(`{"id": "v", "type": "rubrics_verifier", "prompt_id": "p", ` + twoCriteria + `}`)
	if got := steptest.Texts(b.exec.Preflight(t.Context(), d, step.Plan{})); !strings.Contains(got, "no such agent here") {
		t.Error(got)
	}
	if err := judge("undeployable", ""); steptest.ErrorType(err) != "infra: JudgeError" {
		t.Error(err)
	}
}
