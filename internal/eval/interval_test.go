package eval

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"agentenv.internal/agentenv/internal/runlog"
)

func TestPassHatK(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				want, _ := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(c), int64(k)), new(big.Int).Binomial(int64(n), int64(k))).Float64()
				if got := PassHatK(n, c, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("n %d, c %d, k %d: %v, want %v", n, c, k, got, want)
				}
			}
		}
	}
}

func TestStudent(t *testing.T) {
	for df, want := range map[int]float64{1: 12.706, 10: 2.228, 30: 2.042, 40: 2.0211, 60: 2.0003, 120: 1.9799, 100000: 1.9600} {
		if got := student(df); math.Abs(got-want) > 2e-4 {
			t.Errorf("%d: %v, want %v", df, got, want)
		}
	}
}

// TestIntervalCovers draws evals of known means: the interval must hold the mean about as often as it says.
func TestIntervalCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		tasks, k int
		p        func() float64 // a task's own chance to pass
		mean     float64
	}{
		{1, 20, func() float64 { return 0.3 }, 0.3},
		{1, 8, func() float64 { return 0.9 }, 0.9},
		{12, 4, r.Float64, 0.5},
		{30, 1, func() float64 { return 0.95 }, 0.95},
		{20, 4, func() float64 { return float64(r.IntN(2)) }, 0.5},
	} {
		const rounds = 2000
		held := 0
		for range rounds {
			var trials []Trial
			for i := range c.tasks {
				p := c.p()
				for range c.k {
					v, s := 0.0, runlog.Scored
					if r.Float64() < p {
						v, s = 1, runlog.Passed
					}
					trials = append(trials, trial(string(rune('a'+i)), s, v))
				}
			}
			in := Summarize(trials).Interval
			if in.Low < 0 || in.High > 1 || in.Low > in.High {
				t.Fatalf("%+v", in)
			}
			if in.Low <= c.mean && c.mean <= in.High {
				held++
			}
		}
		if share := float64(held) / rounds; share < 0.93 || share > 0.999 {
			t.Errorf("%d tasks, %d runs each: held %.3f of the time", c.tasks, c.k, share)
		}
	}
}

func runs(task string, passed, n int) []Trial {
	var out []Trial
	for i := range n {
		if i < passed {
			out = append(out, trial(task, runlog.Passed, 1))
		} else {
			out = append(out, trial(task, runlog.Scored, 0))
		}
	}
	return out
}

func TestCompare(t *testing.T) {
	many := func(passed int) (out []Trial) {
		for i := range 20 {
			out = append(out, runs(string(rune('a'+i)), passed, 4)...)
		}
		return out
	}
	for _, c := range []struct {
		name string
		a, b []Trial
		want string
	}{
		{"clearly better", many(1), many(3), Better},
		{"clearly worse", many(4), many(1), Worse},
		{"equal", many(2), many(2), Same},
		{"one task, few runs", runs("a", 1, 4), runs("a", 3, 4), Same},
		{"one task, many runs", runs("a", 10, 100), runs("a", 90, 100), Better},
		{"one run each", runs("a", 0, 1), runs("a", 1, 1), TooFew},
		{"nothing shared", runs("a", 1, 2), runs("b", 1, 2), NotShared},
		{"no scores", []Trial{trial("a", runlog.InfraFailed)}, runs("a", 1, 2), NotShared},
	} {
		got := Compare(c.a, c.b)
		if got.Verdict != c.want {
			t.Errorf("%s: %s (%v %v)", c.name, got.Verdict, got.Difference, got.Interval)
		}
	}
	c := Compare(append(runs("a", 1, 2), runs("x", 1, 1)...), append(runs("a", 2, 2), runs("y", 0, 1)...))
	if len(c.OnlyA) != 1 || c.OnlyA[0] != "x" || len(c.OnlyB) != 1 || c.OnlyB[0] != "y" || c.Tasks[0] != (Pair{"a", 0.5, 1, 2, 2}) {
		t.Errorf("%+v", c)
	}
}

// TestEqualRunsAreNotCertain: four passes of four don't make a point of the interval, nor a gate that finds every difference.
func TestEqualRunsAreNotCertain(t *testing.T) {
	s := Summarize(runs("a", 4, 4))
	if s.Interval.High != 1 || s.Interval.Low > 0.5 || *s.Detectable < 0.2 {
		t.Errorf("%+v %v", s.Interval, *s.Detectable)
	}
	if s := Summarize(runs("a", 1, 1)); s.Interval != nil || s.Detectable != nil || s.Mean == nil {
		t.Errorf("one run: %+v", s)
	}
}
