// Package eval sums up runs: counts by outcome whose sum is the number of runs, mean scores, and pass@k. It is pure.
//
// What a run says of an agent and what it says of the machinery are kept apart: infra_failed and cancelled runs are counted and never averaged,
// and a run without a score is no zero.
package eval

import (
	"maps"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// Trial is one run as statistics see it.
type Trial struct {
	Task   string
	Status runlog.Status
	Scores map[string]float64
	Cost   runlog.Cost
	Took   time.Duration
}

// Score is a run's one score: the mean of its verifiers' scores. It has none without them, or when the machinery failed.
func (t Trial) Score() (float64, bool) {
	if len(t.Scores) == 0 || t.Status != runlog.Passed && t.Status != runlog.Scored {
		return 0, false
	}
	sum := 0.0
	for _, id := range slices.Sorted(maps.Keys(t.Scores)) { // in one order, so that sums are the same each time
		sum += t.Scores[id]
	}
	return sum / float64(len(t.Scores)), true
}

// Counts are runs by outcome; N is the sum of the others.
type Counts struct {
	N           int `json:"n"`
	Passed      int `json:"passed"`
	Scored      int `json:"scored"` // below 1
	Unscored    int `json:"unscored"`
	Failed      int `json:"failed"`
	InfraFailed int `json:"infra_failed"`
	Cancelled   int `json:"cancelled"`
}

// Count counts trials. A status that is no outcome means that nobody recorded the run's end: it counts as infra_failed.
func Count(trials []Trial) Counts {
	c := Counts{N: len(trials)}
	for _, t := range trials {
		switch t.Status {
		case runlog.Passed:
			c.Passed++
		case runlog.Scored:
			c.Scored++
		case runlog.Unscored:
			c.Unscored++
		case runlog.Failed:
			c.Failed++
		case runlog.Cancelled:
			c.Cancelled++
		default:
			c.InfraFailed++
		}
	}
	return c
}

// judged is how many runs tell whether the task was solved.
func (c Counts) judged() int { return c.Passed + c.Scored + c.Failed }

// Stats are the figures of a set of runs.
type Stats struct {
	Counts
	// Mean is over the runs that have a score; nil when none has.
	Mean *float64 `json:"mean_score,omitempty"`
	// Interval is of Mean: over tasks, or over the runs of the one task. Detectable is the smallest difference to another such set that would
	// be found in four of five comparisons. Both are nil with fewer than two values.
	Interval   *Interval `json:"interval_95,omitempty"`
	Detectable *float64  `json:"detectable_difference,omitempty"`
	// PassAt and PassHat are estimates for 1, 2, 4, … and the largest k that every task allows.
	PassAt  []PassAt    `json:"pass_at_k,omitempty"`
	PassHat []PassAt    `json:"pass_hat_k,omitempty"`
	Cost    runlog.Cost `json:"cost,omitzero"`
	Seconds float64     `json:"run_seconds,omitempty"` // of all runs, one after the other
}

// PassAt is the chance that at least one of k runs passes, or all of them: the mean over tasks of the unbiased estimate.
type PassAt struct {
	K     int     `json:"k"`
	Value float64 `json:"value"`
	Tasks int     `json:"tasks"` // that have at least k runs that tell something
}

// Summarize sums trials up.
func Summarize(trials []Trial) Stats {
	s := Stats{Counts: Count(trials)}
	sum, n := 0.0, 0
	byTask := map[string][]Trial{}
	for _, t := range trials {
		byTask[t.Task] = append(byTask[t.Task], t)
		s.Cost = s.Cost.Plus(t.Cost)
		s.Seconds += t.Took.Seconds()
		if v, ok := t.Score(); ok {
			sum += v
			n++
		}
	}
	if n > 0 {
		s.Mean = new(sum / float64(n))
	}
	if _, cs := clusters(trials); len(cs) > 0 {
		if sp, ok := of(cs); ok {
			s.Interval, s.Detectable = new(sp.interval()), new(sp.detectable())
		}
	}
	most := 0
	counts := make([]Counts, 0, len(byTask))
	for _, task := range slices.Sorted(maps.Keys(byTask)) {
		c := Count(byTask[task])
		counts = append(counts, c)
		most = max(most, c.judged())
	}
	for _, k := range ks(most) {
		at, hat := PassAt{K: k}, PassAt{K: k}
		for _, c := range counts {
			if n := c.judged(); n >= k {
				at.Value += PassAtK(n, c.Passed, k)
				hat.Value += PassHatK(n, c.Passed, k)
				at.Tasks++
			}
		}
		hat.Tasks = at.Tasks
		at.Value /= float64(at.Tasks)
		hat.Value /= float64(at.Tasks)
		s.PassAt, s.PassHat = append(s.PassAt, at), append(s.PassHat, hat)
	}
	return s
}

// ks are 1, 2, 4, … below n, and n.
func ks(n int) []int {
	var out []int
	for k := 1; k < n; k *= 2 {
		out = append(out, k)
	}
	if n > 0 {
		out = append(out, n)
	}
	return out
}

// PassAtK is the unbiased estimate of the chance that at least one of k runs passes, from n runs of which c passed: 1 - C(n-c, k) / C(n, k).
// It takes 1 <= k <= n.
func PassAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}
