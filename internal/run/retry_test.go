package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// failsFirst fails its first n attempts.
func failsFirst(n int, then executor) executor {
	return func(ctx context.Context, c *step.Call) error {
		if c.Attempt <= n {
			return fmt.Errorf("attempt %d", c.Attempt)
		}
		if then == nil {
			return nil
		}
		return then(ctx, c)
	}
}

func TestRetryGoesBackAndRunsAllThatDepends(t *testing.T) {
	r := newRig()
	r.add("box", "", func(_ context.Context, c *step.Call) error { return c.Out.Append("metadata/log", c.Attempt) })
	r.add("load", "box", func(_ context.Context, c *step.Call) error { return c.Out.Append("metadata/log", 10*c.Attempt) })
	r.add("act", "load", failsFirst(2, func(_ context.Context, c *step.Call) error {
		got := fmt.Sprintf("%s", c.State.List("metadata/log"))
		if got != "[1 30]" {
			return errors.New("sees " + got)
		}
		return nil
	}), again(1, 2, 0))
	r.add("after", "act", nil)
	res, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "status", res.Status, runlog.Unscored)
	want(t, "failures that stay", len(res.Failures), 0)
	want(t, "undone", r.world.undone, []string{"load", "act", "load", "act"})
	want(t, "events", r.owner.text(), []string{
		"run.started", "start box 1", "end box succeeded", "start load 1", "end load succeeded",
		"start act 1", "note", "end act failed", "steps.reset", "start load 2", "end load succeeded", "start act 2", "note", "end act failed", "steps.reset",
		"start load 3", "end load succeeded", "start act 3", "end act succeeded", "start after 1", "end after succeeded", "run.ended",
	})
}

func TestRetrySpentBudgetFails(t *testing.T) {
	r := newRig()
	r.add("a", "", fails("never"), again(0, 1, 0))
	res, _ := r.run(t.Context())
	want(t, "status", res.Status, runlog.Failed)
	want(t, "one failure", len(res.Failures), 1)
	want(t, "events", r.owner.text(), []string{"run.started", "start a 1", "note", "end a failed", "steps.reset", "start a 2", "end a failed", "run.ended"})
}

func TestRetryBacksOffTwiceAsLongEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("a", "", failsFirst(3, nil), again(0, 3, time.Second))
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Unscored)
		want(t, "1 s + 2 s + 4 s", res.Seconds, 7)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("a", "", failsFirst(3, nil), again(0, 3, 1<<63-1))
		res, _ := r.run(t.Context())
		want(t, "5 minutes at the most, each time", res.Seconds, 900)
	})
}

// The budget is the failing step's own, and tolerance counts once it is spent.
func TestRetryBudgetIsEachSteps(t *testing.T) {
	r := newRig()
	r.add("box", "", nil)
	r.add("x", "box", failsFirst(2, nil), again(0, 2, 0))
	r.add("y", "x", fails("never"), again(0, 1, 0), tolerated)
	r.add("end", "y", score("v", 1))
	res, err := r.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "status", res.Status, runlog.Failed)
	want(t, "what follows a tolerated failure", res.Scores, map[string]float64{"v": 1})
	want(t, "failures", res.Failures, []Failure{{Step: "y", Type: "y", ErrorType: "StepError", Error: "never"}})
	starts := map[string]int{}
	for _, e := range r.owner.events {
		if e.Kind == runlog.StepStarted {
			starts[e.Step]++
		}
	}
	want(t, "starts: x fails twice, then y sends the run back once", starts, map[string]int{"box": 4, "x": 4, "y": 2, "end": 1})
}

func TestRetryLeavesParallelStepsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("box", "", nil)
		r.add("other", "", sleeps(5*time.Second))
		r.add("sibling", "box", sleeps(5*time.Second)) // depends on box: told to stop, and runs again
		r.add("act", "box", func(ctx context.Context, c *step.Call) error {
			time.Sleep(time.Second)
			return failsFirst(1, nil)(ctx, c)
		}, again(0, 1, 0))
		r.add("end", "*", score("v", 1))
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Passed)
		want(t, "seconds", res.Seconds, 6)
		text := r.owner.text()
		for _, once := range []string{"start other 1", "end other succeeded", "end sibling cancelled", "start sibling 2", "end sibling succeeded", "start box 2"} {
			if !slices.Contains(text, once) {
				t.Errorf("no %q in %q", once, text)
			}
		}
		if slices.Contains(text, "start other 2") {
			t.Error("a step outside the part ran twice")
		}
	})
}

// An attempt that a retry overtakes may still end well, and even deaf to its cancel: what it leaves is dropped.
func TestRetryDropsWhatAnOvertakenAttemptLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("box", "", nil)
		r.add("deaf", "box", func(_ context.Context, c *step.Call) error {
			time.Sleep(3 * time.Second)
			return c.Out.Append("metadata/log", c.Attempt)
		})
		r.add("act", "box", func(ctx context.Context, c *step.Call) error {
			time.Sleep(time.Second)
			return failsFirst(1, nil)(ctx, c)
		}, again(0, 1, 0))
		var seen string
		r.add("end", "*", func(_ context.Context, c *step.Call) error {
			seen = fmt.Sprintf("%s", c.State.List("metadata/log"))
			return nil
		})
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Unscored)
		want(t, "log", seen, "[2]")
		want(t, "the part starts again once nothing of it runs", res.Seconds, 6)
	})
}

func TestTwoRetriesAtOnce(t *testing.T) {
	r := newRig()
	r.add("box", "", nil)
	r.add("x", "box", failsFirst(1, nil), again(0, 1, 0))
	r.add("y", "box", failsFirst(1, nil), again(2, 1, 0))
	r.add("end", "x y", score("v", 1))
	res, err := r.run(t.Context())
	if err != nil || res.Status != runlog.Passed {
		t.Errorf("%+v %v %q", res, err, r.owner.text())
	}
}

func TestRetryIsGivenUpAfterAFatalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("a", "", failsFirst(1, nil), again(0, 5, time.Hour))
		r.add("bad", "", func(context.Context, *step.Call) error { time.Sleep(time.Second); return errors.New("no") })
		res, _ := r.run(t.Context())
		want(t, "status", res.Status, runlog.Failed)
		want(t, "decides", res.Failures[0].Step, "bad")
		want(t, "seconds", res.Seconds, 1)
		want(t, "events", r.owner.text(), []string{"run.started", "start a 1", "start bad 1", "note", "end a failed", "steps.reset", "end bad failed", "end a skipped", "run.ended"})
	})
}

func TestCancelDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.add("a", "", failsFirst(1, nil), again(0, 5, time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		res, _ := r.run(ctx)
		want(t, "status", res.Status, runlog.Cancelled)
		want(t, "seconds", res.Seconds, 1)
	})
}

// FuzzSchedule runs random graphs with random failures: every run ends, and every step ends exactly as its dependencies allow.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte{3, 0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{12, 255, 17, 3, 99, 4, 200, 8, 61, 7, 7, 7, 90, 14, 33})
	f.Fuzz(func(t *testing.T, in []byte) {
		at := 0
		next := func() int {
			if len(in) == 0 {
				return 0
			}
			at++
			return int(in[at%len(in)]) + at
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig()
			n := next()%14 + 1
			for i := range n {
				st := task.Step{ID: fmt.Sprint("s", i), Type: fmt.Sprint("s", i)}
				for d := range i {
					if next()%3 == 0 {
						st.Deps = append(st.Deps, d)
					}
				}
				st.Tolerated, st.Always = next()%4 == 0, next()%5 == 0
				if next()%3 == 0 {
					from := i
					if len(st.Deps) > 0 {
						from = st.Deps[0]
					}
					st.Retry = &task.Retry{From: from, Max: next() % 3, Backoff: time.Duration(next()%3) * time.Second}
				}
				bad, wait := next()%4, time.Duration(next()%5)*time.Second
				r.steps = append(r.steps, st)
				r.set.Add(st.ID, catalog.Origin{Kind: catalog.Builtin}, executor(func(ctx context.Context, c *step.Call) error {
					_ = sleeps(wait)(ctx, c)
					if c.Attempt <= bad-1 {
						return errors.New("no")
					}
					return ctx.Err()
				}))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
			defer cancel()
			res, err := r.run(ctx)
			if err != nil || res.Status == runlog.Cancelled {
				t.Fatalf("%+v, %v", res, err)
			}
			checkEnds(t, r)
		})
	})
}

// checkEnds holds a run's events against its graph.
func checkEnds(t *testing.T, r *rig) {
	t.Helper()
	ended := map[string]bool{}
	running := map[string]bool{}
	for _, e := range r.owner.events {
		switch e.Kind {
		case runlog.StepStarted:
			if running[e.Step] {
				t.Errorf("%s starts while it runs", e.Step)
			}
			running[e.Step] = true
			i := slices.IndexFunc(r.steps, func(s task.Step) bool { return s.ID == e.Step })
			for _, d := range r.steps[i].Deps {
				if dep := r.steps[d].ID; !ended[dep] || running[dep] {
					t.Errorf("%s starts before %s has ended", e.Step, dep)
				}
			}
		case runlog.StepEnded:
			running[e.Step], ended[e.Step] = false, true
		}
	}
	for _, s := range r.steps {
		if !ended[s.ID] || running[s.ID] {
			t.Errorf("%s never ended", s.ID)
		}
	}
}

func BenchmarkChain500(b *testing.B) {
	for b.Loop() {
		r := newRig()
		for i := range 500 {
			deps := make([]int, i)
			for d := range deps {
				deps[d] = d
			}
			r.add(fmt.Sprint("s", i), "", func(_ context.Context, c *step.Call) error {
				return c.Out.Set(step.VerificationsPath+"/"+c.Step, step.Verification{Step: c.Step, Score: 1})
			}, func(s *task.Step) { s.Deps = deps })
		}
		runner := &Runner{Executors: r.set, World: r.world, Log: slog.New(slog.DiscardHandler)}
		res, err := runner.Run(b.Context(), Request{Run: "r", Task: &task.Task{Steps: r.steps}, Owner: r.owner, Policy: deploy.Policy{}})
		if err != nil || res.Status != runlog.Passed {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/500, "µs/step")
}
