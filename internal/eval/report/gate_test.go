package report

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/eval"
)

// TestGate: a gate whose limit lies within the interval of the mean says that the repeats are too few, on whichever side the mean is; one that is sure says
// nothing of them; without a score nothing is passed.
func TestGate(t *testing.T) {
	stats := func(mean, low, high float64) *eval.Stats {
		return &eval.Stats{Mean: &mean, Interval: &eval.Interval{Low: low, High: high}}
	}
	one := 1.0
	for name, c := range map[string]struct {
		s             *eval.Stats
		below, unsure bool
		text          string
	}{
		"surely above": {stats(0.9, 0.85, 0.95), false, false, ""},
		"surely below": {stats(0.2, 0.1, 0.3), true, false, "the mean score 0.2 is below 0.8"},
		"maybe above":  {stats(0.85, 0.6, 1), false, true, "not enough repeats"},
		"maybe below":  {stats(0.75, 0.5, 0.9), true, true, "below 0.8; not enough repeats"},
		"one value":    {&eval.Stats{Mean: &one}, false, true, "not enough repeats: one value"},
		"no score":     {&eval.Stats{}, true, true, "nothing has a score"},
	} {
		g := Judge(c.s, 0.8)
		if text := g.Text(c.s); g.Below != c.below || g.Unsure != c.unsure || (c.text == "") != (text == "") || !strings.Contains(text, c.text) {
			t.Errorf("%s: %+v %q", name, g, text)
		}
	}
}
