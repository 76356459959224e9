package run

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// trivial is a task of n steps that leave a small diff; chained ones wait for all before them.
func trivial(n int, chained bool) (*task.Task, *catalog.Set[step.Executor]) {
	t := &task.Task{ID: "@local/b/t"}
	all := make([]int, n)
	for i := range n {
		all[i] = i
		st := task.Step{ID: fmt.Sprintf("s%d", i), Type: "t", Doc: doc.Build(map[string]any{"id": fmt.Sprintf("s%d", i), "type": "t"})}
		if chained {
			st.Deps = all[:i:i]
		}
		t.Steps = append(t.Steps, st)
	}
	set := catalog.New[step.Executor]("step type")
	set.Add("t", catalog.Origin{Kind: catalog.Builtin}, executor(func(_ context.Context, c *step.Call) error {
		return c.Out.Set(step.Child("metadata/x", c.Step), 1)
	}))
	return t, set
}

func runTrivial(tb testing.TB, n int, chained bool) *owner {
	tb.Helper()
	t, set := trivial(n, chained)
	o := &owner{}
	r := &Runner{Executors: set, World: &world{}, Log: slog.New(slog.DiscardHandler)}
	res, err := r.Run(tb.Context(), Request{Run: "@local/b/t-1", Task: t, Owner: o})
	if err != nil || res.Status != runlog.Unscored {
		tb.Fatal(res, err)
	}
	return o
}

func BenchmarkSteps(b *testing.B) {
	for _, n := range []int{500, 10_000} {
		for _, chained := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d chained=%v", n, chained), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					runTrivial(b, n, chained)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/step")
			})
		}
	}
}

func BenchmarkReplan10000(b *testing.B) {
	t, set := trivial(10_000, true)
	o := runTrivial(b, 10_000, true)
	r := &Runner{Executors: set, World: &world{}}
	for b.Loop() {
		if _, err := r.Replan(b.Context(), t, o.events[:len(o.events)-5], nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLongRunsStayLinear compares the work of a step in a run of 10,000 with that in one of 1,000.
func TestLongRunsStayLinear(t *testing.T) {
	per := func(n int) time.Duration {
		best := time.Hour
		for range 3 {
			began := cpu(t)
			runTrivial(t, n, true)
			best = min(best, cpu(t)-began)
		}
		return best / time.Duration(n)
	}
	runTrivial(t, 1000, true)
	short, long := per(1000), per(10_000)
	if long > 3*short+5*time.Microsecond {
		t.Errorf("a step costs %v in a run of 10,000, and %v in one of 1,000", long, short)
	}
}
