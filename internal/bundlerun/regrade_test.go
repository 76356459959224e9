package bundlerun

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/taskstore"
)

// graded runs one task of e and answers its run.
func (e *evals) graded(t *testing.T, steps string) RunResult {
	t.Helper()
	ref := e.put(t, "@local/graded", steps)
	s, err := e.process(-1).RunStored(t.Context(), StoredRequest{Tasks: []taskstore.TaskRef{ref}}, &reporter{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Runs[0]
}

func TestRegradeWithOtherJudges(t *testing.T) {
	e := newEvals(t, 1)
	with := strings.TrimSuffix(taskOf(1), "]") + `, {"id": "all", "type": "aggregate_verifiers", "verifier_ids": ["grade"]}]`
	e.execs["aggregate_verifiers"] = verify.NewAggregateVerifiers()
	res := e.graded(t, with)
	if res.Status != runlog.Passed {
		t.Fatalf("%+v", res)
	}
	asked := e.asked.Load()
	e.putScript(t, "@local/strict", `{"variants":[{"rules":[{"when":".","say":"{\"results\":[{\"id\":\"c1\",\"score\":0,\"justification\":\"no\"},{\"id\":\"c2\",\"score\":1,\"justification\":\"yes\"}]}"}]}]}`)
	out, err := e.process(-1).Regrade(t.Context(), res.ID, RegradeOptions{Judge: "scripted:@local/strict"})
	if err != nil {
		t.Fatal(err)
	}
	if out.Status != runlog.Scored || out.Scores["grade"] != 0.5 || out.Scores["all"] != 0.5 || out.OldStatus != runlog.Passed || out.OldScores["grade"] != 1 || e.asked.Load() != asked {
		t.Errorf("%+v", out)
	}
	rec, err := e.process(-1).Record(t.Context(), res.ID)
	if err != nil || rec.Status != runlog.Scored || rec.Scores["grade"] != 0.5 || len(rec.Regrades) != 1 || !strings.Contains(string(rec.Verified["grade"]), "scripted:@local/strict") ||
		!strings.Contains(string(rec.Regrades[0].OldVerified["grade"]), "scripted:@local/judge") || rec.Ended.IsZero() || rec.Epochs != 1 {
		t.Errorf("%+v %v", rec, err)
	}
	sum, err := e.store.Runs().Get(t.Context(), res.ID)
	if err != nil || sum.Status != runlog.Scored || sum.Scores["grade"] != 0.5 {
		t.Errorf("%+v %v", sum, err)
	}
	// Graded by other criteria, with a judge of the task's own: those that the scores before were replaced by stay on record too.
	ref := e.put(t, "@local/graded", strings.Replace(with, `"is short"}]`, `"is short", "weight": 3}]`, 1))
	out, err = e.process(-1).Regrade(t.Context(), res.ID, RegradeOptions{Version: ref.Version, Judge: "scripted:@local/strict"})
	if err != nil || out.Scores["grade"] != 0.75 || out.Version != 2 || out.OldScores["grade"] != 0.5 {
		t.Errorf("%+v %v", out, err)
	}
	if rec, err := e.process(-1).Record(t.Context(), res.ID); err != nil || len(rec.Regrades) != 2 {
		t.Errorf("%+v %v", rec.Regrades, err)
	}
}

func TestRegradeOfAVerifierThatCouldNotBeRun(t *testing.T) {
	e := newEvals(t, 1)
	e.putScript(t, "@local/down", `{"variants":[{"rules":[{"when":".","fail":"overloaded"}]}]}`)
	res := e.graded(t, strings.Replace(taskOf(1), "scripted:@local/judge", "scripted:@local/down", 1))
	if res.Status != runlog.InfraFailed || res.Scores != nil {
		t.Fatalf("%+v", res)
	}
	x := e.process(-1)
	out, err := x.Regrade(t.Context(), res.ID, RegradeOptions{})
	if err != nil || out.Status != runlog.InfraFailed || out.Scores != nil {
		t.Errorf("while it is down: %+v %v", out, err)
	}
	out, err = x.Regrade(t.Context(), res.ID, RegradeOptions{Judge: "scripted:@local/judge"})
	if err != nil || out.Status != runlog.Passed || out.Scores["grade"] != 1 || out.Error != "" {
		t.Errorf("once it is up: %+v %v", out, err)
	}
	rec, err := x.Record(t.Context(), res.ID)
	if err != nil || rec.Status != runlog.Passed || rec.Error != "" || rec.FailedAt != "" || rec.Steps[1].Status != runlog.Succeeded || rec.Steps[1].Attempt != 3 {
		t.Errorf("%+v %v", rec, err)
	}
}

func TestRegradeRefusals(t *testing.T) {
	e := newEvals(t, 1)
	x := e.process(-1)
	boxed := e.graded(t, `[`+deployStep+`,`+inBox+`"id": "look"}, `+taskOf(1)[1:])
	if _, err := x.Regrade(t.Context(), boxed.ID, RegradeOptions{}); err == nil || !strings.Contains(err.Error(), "step 'look' (verify_sandbox) needs sandbox 'box', which is gone") {
		t.Error(err)
	}
	out, err := x.Regrade(t.Context(), boxed.ID, RegradeOptions{Steps: []string{"grade"}})
	if err != nil || fmt.Sprint(out.Steps) != "[grade]" {
		t.Errorf("%+v %v", out, err)
	}
	for _, c := range []struct{ step, want string }{{"none", "has no step 'none'"}, {"ask", "leaves no score"}} {
		if _, err := x.Regrade(t.Context(), boxed.ID, RegradeOptions{Steps: []string{c.step}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.step, err)
		}
	}
	e.faults = func(string, int) error { return &model.Error{Kind: model.Unreachable} }
	failed := e.graded(t, taskOf(3))
	if _, err := x.Regrade(t.Context(), failed.ID, RegradeOptions{}); err == nil || !strings.Contains(err.Error(), "step 'ask' before it has not succeeded") {
		t.Error(err)
	}
	if sum, err := x.Runs.Get(t.Context(), failed.ID); err != nil || sum.Status != runlog.InfraFailed {
		t.Errorf("%+v %v", sum, err)
	}
	if _, err := x.Regrade(t.Context(), "@local/none", RegradeOptions{}); err == nil {
		t.Error("a run that there isn't")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Regrade(ctx, boxed.ID, RegradeOptions{Steps: []string{"grade"}}); err == nil {
		t.Error("cancelled, and graded")
	}
}
