package eval

import (
	"maps"
	"math"
	"slices"
)

// Interval is where a figure lies with a confidence of 95 %.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// cluster is the scores of one task: runs of one task tell less than runs of as many tasks.
type cluster []float64

func (c cluster) mean() float64 {
	sum := 0.0
	for _, v := range c {
		sum += v
	}
	return sum / float64(len(c))
}

// clusters are the scores by task, sorted by task, those without any left out.
func clusters(trials []Trial) (names []string, out []cluster) {
	by := map[string]cluster{}
	for _, t := range trials {
		if v, ok := t.Score(); ok {
			by[t.Task] = append(by[t.Task], v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		names, out = append(names, name), append(out, by[name])
	}
	return names, out
}

// spread is a mean of values in 0..1 with its standard error, and how many independent values it stands on.
type spread struct {
	mean, se float64
	n        int
}

// of takes tasks as the independent values, and runs where there is one task only. ok is false when there are fewer than two.
func of(cs []cluster) (spread, bool) {
	values := make([]float64, 0, len(cs))
	for _, c := range cs {
		values = append(values, c.mean())
	}
	if len(cs) == 1 {
		values = cs[0]
	}
	s := spread{n: len(values)}
	if s.n < 2 {
		return s, false
	}
	s.mean = cluster(values).mean()
	sum := 0.0
	for _, v := range values {
		sum += (v - s.mean) * (v - s.mean)
	}
	s.se = math.Sqrt(sum / float64(s.n-1) / float64(s.n))
	return s, true
}

// interval is Wilson's with the quantile of Student's t, over as many trials as the standard error is worth: it stays within 0..1, and n equal
// values don't make it a point.
func (s spread) interval() Interval {
	n := float64(s.n)
	if s.se > 0 {
		n = s.mean * (1 - s.mean) / (s.se * s.se)
	}
	t := student(s.n - 1)
	center := (s.mean + t*t/(2*n)) / (1 + t*t/n)
	half := t / (1 + t*t/n) * math.Sqrt(s.mean*(1-s.mean)/n+t*t/(4*n*n))
	return Interval{max(0, center-half), min(1, center+half)}
}

// student is the 97.5 % quantile of Student's t with df degrees of freedom: exact to three places for few, by the expansion of Cornish and
// Fisher for many.
func student(df int) float64 {
	table := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if df < 1 {
		return math.Inf(1)
	}
	if df <= len(table) {
		return table[df-1]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}

// PassHatK is the unbiased estimate of the chance that all of k runs pass, from n runs of which c passed: C(c, k) / C(n, k).
// It takes 1 <= k <= n.
func PassHatK(n, c, k int) float64 {
	all := 1.0
	for i := range k {
		all *= float64(max(0, c-i)) / float64(n-i)
	}
	return all
}

// detectable is the smallest difference of two means, each spread like s, that is found in four of five comparisons at 95 % confidence.
func (s spread) detectable() float64 {
	const power = 0.841621 // normal quantile of 80 %
	se := s.se
	if se == 0 { // as if the next value were the first to differ
		n := float64(s.n)
		m := (s.mean*n + 0.5) / (n + 1)
		se = math.Sqrt(m * (1 - m) / (n + 1))
	}
	return min(1, (student(s.n-1)+power)*math.Sqrt2*se)
}
