package verify

import (
	"context"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// ResponseVerifier looks for texts and patterns in an agent's reply.
type ResponseVerifier struct{}

// NewResponseVerifier makes the executor.
func NewResponseVerifier() *ResponseVerifier { return &ResponseVerifier{} }

// Run tries the criteria. An agent that answered with an error meets none of them.
func (e *ResponseVerifier) Run(_ context.Context, c *step.Call) error {
	p, err := answerTo(c, c.Doc.Get("prompt_id").Text())
	if err != nil {
		return err
	}
	v := step.Verification{Step: c.Step, Results: []step.Row{}}
	for i, criterion := range c.Doc.Get("criteria").Items() {
		row := step.Row{}
		for k, f := range criterion.Members() {
			row[k] = f.Any()
		}
		out := outcome{false, "the agent answered with an error: " + p.ErrorType}
		if p.ErrorType == "" {
			if out, err = inReply(p.reply(), criterion); err != nil {
				return step.Errorf("ValueError", "criteria[%d]: %w", i, err)
			}
		}
		row["criterion_index"], row["result"], row["justification"], row["score"] = i, out.ok, out.why, 0.0
		if out.ok {
			row["score"] = 1.0
		}
		v.Results = append(v.Results, row)
	}
	v.Score = Aggregate(v.Results, c.Doc.Get("score_aggregator").Text())
	if p.ErrorType != "" {
		v.Score = 0
	}
	id := verifierID(c)
	c.Log.Info("verified", "verifier", id, "score", v.Score, "rows", len(v.Results))
	return c.Out.Set(step.Child(step.VerificationsPath, id), v)
}

func inReply(reply string, criterion doc.Node) (outcome, error) {
	switch typ := criterion.Get("type").Text(); typ {
	case step.ResponseContains:
		var missing []string
		for _, n := range criterion.Get("needles").Items() {
			if !strings.Contains(reply, n.Text()) {
				missing = append(missing, diag.Repr(n.Text()))
			}
		}
		if len(missing) > 0 {
			return outcome{false, "the reply lacks " + strings.Join(missing, ", ")}, nil
		}
		return outcome{true, "all there"}, nil
	case step.ResponseRegex:
		re, err := step.Pattern(criterion.Get("pattern").Text(), step.ResponseFlags(criterion)...)
		if err != nil {
			return outcome{}, err
		}
		if !re.MatchString(reply) {
			return outcome{false, "nothing in the reply matches"}, nil
		}
		return outcome{true, "a part of the reply matches"}, nil
	default:
		return outcome{}, fmt.Errorf("%s is no type of criterion", diag.Repr(typ))
	}
}
