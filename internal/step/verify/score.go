package verify

import (
	"math"
	"slices"

	"agentenv.internal/agentenv/internal/step"
)

// Aggregate makes one score, 0 to 1, of rows. Rows that were skipped don't count; no rows that count is 0.
//
// all_pass and any_pass look at result. weighted_average is the sum of score times weight over positive weights, less the sum of
// (1 - score) times |weight| over negative ones, divided by the sum of the positive weights; without a positive weight it is 0.
// A row without a weight has weight 1, one without a score has its result as score.
func Aggregate(rows []step.Row, how string) float64 {
	var counted []step.Row
	for _, r := range rows {
		if skipped, _ := r["skipped"].(bool); !skipped {
			counted = append(counted, r)
		}
	}
	if len(counted) == 0 {
		return 0
	}
	switch how {
	case step.AnyPass:
		if slices.ContainsFunc(counted, passes) {
			return 1
		}
		return 0
	case step.WeightedAverage:
		return weighted(counted)
	default: // all_pass: the kind's schema allows no other word
		for _, r := range counted {
			if !passes(r) {
				return 0
			}
		}
		return 1
	}
}

func passes(r step.Row) bool {
	ok, _ := r["result"].(bool)
	return ok
}

func weighted(rows []step.Row) float64 {
	var sum, penalty, weights float64
	for _, r := range rows {
		score, ok := float(r["score"])
		if !ok && passes(r) {
			score = 1
		}
		weight, ok := float(r["weight"])
		if !ok {
			weight = 1
		}
		switch {
		case weight > 0:
			sum += score * weight
			weights += weight
		case weight < 0:
			penalty += (1 - score) * -weight
		}
	}
	if weights == 0 {
		return 0
	}
	return math.Max(0, math.Min(1, (sum-penalty)/weights))
}

// float is a number of a row, however it came there.
func float(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	default:
		return 0, false
	}
}
