package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a review step with its defaults, after steps that left ops; what it logs goes to log.
func call(t *testing.T, fields string, log *strings.Builder, given <-chan step.Decision, ops ...step.Op) *step.Call {
	t.Helper()
	k, ok := step.Kinds().Get("review")
	if !ok {
		t.Fatal("no kind review")
	}
	tree, l := doc.ParseJSON("step.json", []byte(`{"id": "look", "type": "review"`+fields+`}`))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	var h step.History
	h.Commit(0, ops)
	return &step.Call{
		Run: "r", Step: "look", Attempt: 1, Doc: k.Value.Schema().Fill(tree.Root()), Out: &step.Diff{}, Decisions: given,
		State: h.View(func(int) bool { return true }), Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

func decisions(ds ...step.Decision) <-chan step.Decision {
	c := make(chan step.Decision, len(ds))
	for _, d := range ds {
		c <- d
	}
	return c
}

func TestReview(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	for _, tt := range []struct {
		name   string
		d      step.Decision
		fields string
		diff   string
		err    string
	}{
		{
			"continue",
			step.Decision{Choice: step.Continue, Comment: "fine", By: "ann", At: at},
			`, "label": "ship it?"`,
			`[{"op":"set","path":"metadata/review_decisions/look","value":{"decision":"continue","comment":"fine","decided_by":"ann",` +
				`"decided_at_utc":"2026-03-04T05:06:07.000008+00:00","label":"ship it?"}}]`, "",
		},
		{
			"continue of nobody",
			step.Decision{Choice: step.Continue, At: at},
			``,
			`[{"op":"set","path":"metadata/review_decisions/look","value":{"decision":"continue","decided_at_utc":"2026-03-04T05:06:07.000008+00:00","label":null}}]`, "",
		},
		{"abort", step.Decision{Choice: step.Abort}, ``, "null", "ReviewAborted: a person decided to abort"},
		{"abort with a reason", step.Decision{Choice: step.Abort, By: "ann", Comment: "wrong file"}, ``, "null", "ReviewAborted: ann decided to abort: wrong file"},
		{"nonsense", step.Decision{Choice: "maybe"}, ``, "null", `ValueError: "maybe" is no decision; decide continue or abort`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			c := call(t, tt.fields, &log, decisions(tt.d, step.Decision{Choice: step.Abort}))
			err := NewReview().Run(t.Context(), c)
			got := ""
			if e, ok := errors.AsType[*step.Error](err); ok {
				got = e.Type + ": " + e.Error()
			} else if err != nil {
				got = err.Error()
			}
			if got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if diff, err := json.Marshal(c.Out.Ops()); err != nil || string(diff) != tt.diff {
				t.Errorf("diff %s (%v), want %s", diff, err, tt.diff)
			}
			if !strings.Contains(log.String(), "msg=decided decision="+tt.d.Choice) {
				t.Error(log.String())
			}
		})
	}
}

// A decision that nobody makes fails the step at its limit, on the dot.
func TestReviewTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		began := time.Now()
		err := NewReview().Run(t.Context(), call(t, "", &log, nil))
		if e, ok := errors.AsType[*step.Error](err); !ok || e.Type != "TimeoutError" || e.Error() != "nobody decided within 10800s" {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 3*time.Hour {
			t.Errorf("after %v", took)
		}
	})
}

func TestReviewIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log strings.Builder
	if err := NewReview().Run(ctx, call(t, "", &log, nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What is to be judged is in the log: no more of it than people read.
func TestReviewShows(t *testing.T) {
	long := strings.Repeat("ä", maxText) + "THE END"
	value := func(v any) json.RawMessage { b, _ := json.Marshal(v); return b }
	var log strings.Builder
	c := call(t, `, "label": "ship it?"`, &log, decisions(step.Decision{Choice: step.Continue}),
		step.Op{Op: "append", Path: "prompt_responses", Value: value(map[string]any{"prompt_id": "p1", "response": "old"})},
		step.Op{Op: "append", Path: "prompt_responses", Value: value(map[string]any{
			"prompt_id": "p2", "response": long, "structured_output": map[string]any{"list": strings.Repeat("x", maxStructured)},
		})},
		step.Op{Op: "append", Path: "deployed_sandboxes", Value: value(step.Sandbox{Name: "box", ID: "b-1"})},
		step.Op{Op: "set", Path: "metadata/verifications/tests", Value: value(step.Verification{Score: 0.5})},
	)
	if err := NewReview().Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	for _, want := range []string{
		`msg="waiting for a decision: continue or abort"`, `label="ship it?"`, "prompt=p2", "ä… (4007 characters in all)", `… (16011 characters in all)`,
		`scores="tests: 0.5"`, `sandboxes="box b-1"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "THE END") || strings.Contains(text, "old") {
		t.Error("too much is shown")
	}
}
