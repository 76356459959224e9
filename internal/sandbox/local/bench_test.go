package local_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// BenchmarkStart is from the call of Create to the end of a first command, as a run does it, with the box's removal beside the clock.
func BenchmarkStart(b *testing.B) {
	p := openAt(b, stateRoot(b))
	warm(b, p)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		info, err := p.Create(b.Context(), sandbox.Spec{Tied: true})
		if err != nil {
			b.Fatal(err)
		}
		box, err := p.Connect(b.Context(), info.ID)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := box.Exec(b.Context(), guest.Command{Argv: []string{"/bin/true"}}, [3]*os.File{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		b.StopTimer()
		box.Close()
		if err := p.Destroy(b.Context(), info.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	quantiles(b, took)
}

func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for name, q := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99, "max-ms": 1} {
		b.ReportMetric(float64(took[min(int(q*float64(len(took))), len(took)-1)].Microseconds())/1000, name)
	}
}

// warm builds what the first start of all builds.
func warm(tb testing.TB, p sandbox.Provider) {
	tb.Helper()
	info, err := p.Create(tb.Context(), sandbox.Spec{Tied: true})
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.Destroy(tb.Context(), info.ID); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkExec is one command in a box that stands.
func BenchmarkExec(b *testing.B) {
	p := openAt(b, stateRoot(b))
	info, err := p.Create(b.Context(), sandbox.Spec{Tied: true})
	if err != nil {
		b.Fatal(err)
	}
	box, err := p.Connect(b.Context(), info.ID)
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	for b.Loop() {
		if _, err := box.Exec(b.Context(), guest.Command{Argv: []string{"/bin/true"}}, [3]*os.File{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutput is a command whose output is captured.
func BenchmarkOutput(b *testing.B) {
	p := openAt(b, stateRoot(b))
	info, err := p.Create(b.Context(), sandbox.Spec{Tied: true})
	if err != nil {
		b.Fatal(err)
	}
	box, err := p.Connect(b.Context(), info.ID)
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	for b.Loop() {
		if _, err := guest.Output(b.Context(), box, guest.Command{Argv: []string{"/bin/true"}}, guest.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
