package eval

import (
	"maps"
	"math"
	"slices"
)

// Verdicts of a Comparison.
const (
	Better    = "better" // B is
	Worse     = "worse"  // B is
	Same      = "no difference found"
	TooFew    = "not enough repeats"
	NotShared = "no task in common"
)

// Comparison is B beside A, by the tasks that both have scores of.
type Comparison struct {
	Tasks []Pair `json:"tasks"` // sorted by task
	A     Stats  `json:"a"`     // of all, tasks that are not shared included
	B     Stats  `json:"b"`
	// Difference is the mean over shared tasks of B's mean less A's, with its interval; nil with fewer than two values on a side.
	Difference *float64  `json:"difference,omitempty"`
	Interval   *Interval `json:"interval_95,omitempty"`
	Verdict    string    `json:"verdict"`
	OnlyA      []string  `json:"only_a,omitempty"`
	OnlyB      []string  `json:"only_b,omitempty"`
}

// Pair is one task on both sides.
type Pair struct {
	Task string  `json:"task"`
	A    float64 `json:"a"`
	B    float64 `json:"b"`
	NA   int     `json:"n_a"`
	NB   int     `json:"n_b"`
}

// Compare sets b beside a. Tasks are paired, so that their difficulty falls out; one shared task is judged by its runs.
func Compare(a, b []Trial) Comparison {
	c := Comparison{A: Summarize(a), B: Summarize(b), Verdict: NotShared}
	byA, byB := byTask(a), byTask(b)
	var diffs []float64
	for _, task := range slices.Sorted(maps.Keys(byA)) {
		of, shared := byB[task]
		if !shared {
			c.OnlyA = append(c.OnlyA, task)
			continue
		}
		p := Pair{task, byA[task].mean(), of.mean(), len(byA[task]), len(of)}
		c.Tasks = append(c.Tasks, p)
		diffs = append(diffs, p.B-p.A)
	}
	for _, task := range slices.Sorted(maps.Keys(byB)) {
		if _, shared := byA[task]; !shared {
			c.OnlyB = append(c.OnlyB, task)
		}
	}
	switch len(diffs) {
	case 0:
		return c
	case 1:
		c.single(byA[c.Tasks[0].Task], byB[c.Tasks[0].Task])
	default:
		c.paired(diffs)
	}
	return c
}

func byTask(trials []Trial) map[string]cluster {
	names, cs := clusters(trials)
	out := map[string]cluster{}
	for i, n := range names {
		out[n] = cs[i]
	}
	return out
}

// paired judges differences, which lie in -1..1, as a spread of values in 0..1.
func (c *Comparison) paired(diffs []float64) {
	var cs []cluster
	for _, d := range diffs {
		cs = append(cs, cluster{(d + 1) / 2})
	}
	s, _ := of(cs)
	in := s.interval()
	c.judge(2*s.mean-1, Interval{2*in.Low - 1, 2*in.High - 1})
}

// single is Welch's comparison of the runs of one task.
func (c *Comparison) single(a, b cluster) {
	sa, okA := of([]cluster{a})
	sb, okB := of([]cluster{b})
	if !okA || !okB {
		c.Verdict = TooFew
		return
	}
	// Half the width of each side's own interval: equal runs don't make it nothing.
	half := func(s spread) float64 { in := s.interval(); return (in.High - in.Low) / 2 }
	d := sb.mean - sa.mean
	w := math.Hypot(half(sa), half(sb))
	c.judge(d, Interval{max(-1, d-w), min(1, d+w)})
}

func (c *Comparison) judge(d float64, in Interval) {
	c.Difference, c.Interval = &d, &in
	switch {
	case in.Low > 0:
		c.Verdict = Better
	case in.High < 0:
		c.Verdict = Worse
	default:
		c.Verdict = Same
	}
}
