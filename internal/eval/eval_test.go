package eval

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/runlog"
)

func TestPassAtK(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				all := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(k)))
				none := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n-c), int64(k)))
				want, _ := new(big.Rat).Sub(big.NewRat(1, 1), none.Quo(none, all)).Float64()
				if got := PassAtK(n, c, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("n %d, c %d, k %d: %v, want %v", n, c, k, got, want)
				}
			}
		}
	}
}

func trial(task string, s runlog.Status, scores ...float64) Trial {
	t := Trial{Task: task, Status: s, Scores: map[string]float64{}}
	for i, v := range scores {
		t.Scores[fmt.Sprint("v", i)] = v
	}
	return t
}

func TestSummarize(t *testing.T) {
	s := Summarize([]Trial{
		trial("a", runlog.Passed, 1), trial("a", runlog.Scored, 0.5, 0), trial("a", runlog.Failed, 1), trial("a", runlog.InfraFailed, 1),
		trial("b", runlog.Passed, 1, 1), trial("b", runlog.Cancelled), trial("c", runlog.Unscored), trial("c", runlog.Interrupted),
	})
	want := Counts{N: 8, Passed: 2, Scored: 1, Unscored: 1, Failed: 1, InfraFailed: 2, Cancelled: 1}
	if s.Counts != want {
		t.Errorf("%+v", s.Counts)
	}
	if s.Mean == nil || *s.Mean != (1+0.25+1)/3 {
		t.Errorf("mean %v", *s.Mean)
	}
	// a has 3 runs that tell something, of which 1 passed; b has 1, which passed; c has none.
	var got strings.Builder
	for _, p := range s.PassAt {
		fmt.Fprintf(&got, "%d: %.4f of %d; ", p.K, p.Value, p.Tasks)
	}
	if got.String() != "1: 0.6667 of 2; 2: 0.6667 of 1; 3: 1.0000 of 1; " {
		t.Error(got.String())
	}
}

func TestNothingIsNoZero(t *testing.T) {
	for _, trials := range [][]Trial{nil, {trial("a", runlog.Unscored)}, {trial("a", runlog.InfraFailed, 0)}} {
		if s := Summarize(trials); s.Mean != nil || len(s.PassAt) != 0 || s.N != len(trials) {
			t.Errorf("%+v", s)
		}
	}
}

// FuzzCounts: the counts always sum up to the number of runs.
func FuzzCounts(f *testing.F) {
	all := []runlog.Status{
		runlog.Queued, runlog.Running, runlog.Passed, runlog.Scored, runlog.Unscored, runlog.Failed, runlog.InfraFailed,
		runlog.Cancelled, runlog.Interrupted, runlog.Skipped, runlog.Succeeded, "", "other",
	}
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Fuzz(func(t *testing.T, in []byte) {
		var trials []Trial
		for _, b := range in {
			trials = append(trials, trial(fmt.Sprint(b%3), all[int(b)%len(all)], float64(b)/255))
		}
		c := Summarize(trials).Counts
		if c.N != len(in) || c.Passed+c.Scored+c.Unscored+c.Failed+c.InfraFailed+c.Cancelled != c.N {
			t.Errorf("%+v", c)
		}
	})
}
