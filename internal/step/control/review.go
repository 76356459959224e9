// Package control executes the steps that hold a task up until something outside has been settled: review.
package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/step"
)

const (
	// maxText and maxStructured are how much of what is to be judged the step shows, in characters.
	maxText       = 4000
	maxStructured = 16000
	// DecisionsPath is where review leaves what was decided, by step.
	DecisionsPath = "metadata/review_decisions"
	// promptResponses is where prompt steps leave what agents answered.
	promptResponses = "prompt_responses"
)

// Review waits for a person to decide whether the task goes on. Decisions come to it as they are made, so nothing is polled.
type Review struct{}

// NewReview makes the executor.
func NewReview() *Review { return &Review{} }

// decided is what DecisionsPath holds of a step.
type decided struct {
	Decision string  `json:"decision"`
	Comment  string  `json:"comment,omitempty"`
	By       string  `json:"decided_by,omitempty"`
	At       string  `json:"decided_at_utc"`
	Label    *string `json:"label"`
}

// timeFormat is how records of the context spell times.
const timeFormat = "2006-01-02T15:04:05.000000+00:00"

// Run shows what there is to judge, waits, and keeps the decision. An abort fails the step, as waiting too long does.
func (e *Review) Run(ctx context.Context, c *step.Call) error {
	limit, _ := c.Doc.Get("timeout_seconds").Float()
	wait := time.NewTimer(time.Duration(limit * float64(time.Second)))
	defer wait.Stop()
	show(c)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return step.Errorf("TimeoutError", "nobody decided within %gs", limit)
	case d := <-c.Decisions:
		return e.take(c, d)
	}
}

func (e *Review) take(c *step.Call, d step.Decision) error {
	c.Log.Info("decided", "decision", d.Choice, "by", d.By, "comment", d.Comment)
	switch d.Choice {
	case step.Continue:
		rec := decided{Decision: d.Choice, Comment: d.Comment, By: d.By, At: d.At.UTC().Format(timeFormat)}
		if label, ok := c.Doc.Get("label").Str(); ok {
			rec.Label = &label
		}
		return c.Out.Set(step.Child(DecisionsPath, c.Step), rec)
	case step.Abort:
		why := "a person decided to abort"
		if d.By != "" {
			why = d.By + " decided to abort"
		}
		if d.Comment != "" {
			why += ": " + d.Comment
		}
		return step.Errorf("ReviewAborted", "%s", why)
	default:
		return step.Errorf("ValueError", "%q is no decision; decide %s or %s", d.Choice, step.Continue, step.Abort)
	}
}

// show logs what is to be judged: the last answer of an agent, the scores, and the sandboxes that can be looked into.
func show(c *step.Call) {
	attrs := []any{}
	if label := c.Doc.Get("label").Text(); label != "" {
		attrs = append(attrs, "label", label)
	}
	if all := c.State.List(promptResponses); len(all) > 0 {
		var last struct {
			ID         string          `json:"prompt_id"`
			Response   string          `json:"response"`
			Structured json.RawMessage `json:"structured_output"`
		}
		if json.Unmarshal(all[len(all)-1], &last) == nil {
			attrs = append(attrs, "prompt", last.ID, "response", cut(last.Response, maxText))
			if s := string(last.Structured); s != "" && s != "null" {
				attrs = append(attrs, "structured_output", cut(s, maxStructured))
			}
		}
	}
	if scores := scores(c.State); scores != "" {
		attrs = append(attrs, "scores", scores)
	}
	if boxes := boxes(c.State); boxes != "" {
		attrs = append(attrs, "sandboxes", boxes)
	}
	c.Log.Info("waiting for a decision: "+step.Continue+" or "+step.Abort, attrs...)
}

func scores(v step.View) string {
	var out []string
	for _, name := range v.Under(step.VerificationsPath) {
		id := step.Unchild(name)
		var found step.Verification
		if ok, err := v.Get(step.Child(step.VerificationsPath, id), &found); ok && err == nil {
			out = append(out, fmt.Sprintf("%s: %g", id, found.Score))
		}
	}
	return strings.Join(out, ", ")
}

func boxes(v step.View) string {
	var out []string
	for _, raw := range v.List(step.SandboxesPath) {
		var b step.Sandbox
		if json.Unmarshal(raw, &b) == nil {
			out = append(out, b.Name+" "+b.ID)
		}
	}
	return strings.Join(out, ", ")
}

// cut keeps the first n characters of s and says how many there are.
func cut(s string, n int) string {
	at := 0
	for i := range s {
		if at == n {
			return fmt.Sprintf("%s… (%d characters in all)", s[:i], len([]rune(s)))
		}
		at++
	}
	return s
}
