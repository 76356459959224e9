package verify

import (
	"context"
	"strings"

	"agentenv.internal/agentenv/internal/step"
)

// AggregateVerifiers scores the rows of other verifiers once more, together.
type AggregateVerifiers struct{}

// NewAggregateVerifiers makes the executor.
func NewAggregateVerifiers() *AggregateVerifiers { return &AggregateVerifiers{} }

// aggregated is what aggregate_verifiers leaves: a verification that says where its rows are from.
type aggregated struct {
	step.Verification
	Sources []string `json:"source_verifier_ids"`
}

// Run pools the rows, in the order in which the verifiers are named. A verifier that left nothing fails the step.
func (e *AggregateVerifiers) Run(_ context.Context, c *step.Call) error {
	v := aggregated{Verification: step.Verification{Step: c.Step, Results: []step.Row{}}, Sources: []string{}}
	var missing, none []string
	for _, n := range c.Doc.Get("verifier_ids").Items() {
		id := n.Text()
		v.Sources = append(v.Sources, id)
		var from step.Verification
		ok, err := c.State.Get(step.Child(step.VerificationsPath, id), &from)
		if err != nil {
			return step.Errorf("ValueError", "the verification '%s' can't be read: %w", id, err)
		}
		if !ok {
			missing = append(missing, id)
			continue
		}
		if from.Unscored != "" {
			none = append(none, id)
		}
		for _, r := range from.Results {
			if _, nested := r["source_verifier_id"]; !nested {
				r["source_verifier_id"] = id
			}
			v.Results = append(v.Results, r)
		}
	}
	if len(missing) > 0 {
		return step.Errorf("NotFoundError", "no verifier before this step left a score named %s; there %s",
			strings.Join(missing, ", "), have(c.State))
	}
	if len(none) > 0 {
		return unscored(c, "there is no score of "+strings.Join(none, ", "), "")
	}
	v.Score = Aggregate(v.Results, c.Doc.Get("score_aggregator").Text())
	id := verifierID(c)
	c.Log.Info("aggregated", "verifier", id, "score", v.Score, "rows", len(v.Results))
	return c.Out.Set(step.Child(step.VerificationsPath, id), v)
}

// have says which scores there are.
func have(v step.View) string {
	names := v.Under(step.VerificationsPath)
	for i, n := range names {
		names[i] = step.Unchild(n)
	}
	switch len(names) {
	case 0:
		return "is none"
	case 1:
		return "is " + names[0]
	default:
		return "are " + strings.Join(names, ", ")
	}
}
