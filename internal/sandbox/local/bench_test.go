package local_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// BenchmarkStart is from the call of Create to the end of a first command, as a run does it, with the box's removal beside the clock.
func BenchmarkStart(b *testing.B) {
	p := openAt(b, stateRoot(b))
	warm(b, p)
	benchStart(b, p, sandbox.Spec{Tied: true})
}

// BenchmarkImageStart is BenchmarkStart with an image's root of so many layers.
func BenchmarkImageStart(b *testing.B) {
	for _, layers := range []int{1, 10, 60} {
		b.Run(strconv.Itoa(layers), func(b *testing.B) {
			p := openImages(b)
			all := []v1.Layer{programs(b, "true")}
			for i := range layers - 1 {
				all = append(all, layerOf(b, member{name: fmt.Sprintf("d/f%d", i), body: "x"}))
			}
			s := sandbox.Spec{Tied: true, Image: layoutOf(b, v1.Config{}, all...)}
			info, err := p.Create(b.Context(), s)
			if err == nil {
				err = p.Destroy(b.Context(), info.ID)
			}
			if err != nil {
				b.Fatal(err)
			}
			benchStart(b, p, s)
		})
	}
}

func benchStart(b *testing.B, p sandbox.Provider, s sandbox.Spec) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		info, err := p.Create(b.Context(), s)
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

// BenchmarkIdle makes 100 boxes and lets them be: what one costs in memory, all of them in time, and the last start beside the first.
func BenchmarkIdle(b *testing.B) {
	const boxes = 100
	root := stateRoot(b)
	p := openAt(b, root)
	warm(b, p)
	for b.Loop() {
		var ids []string
		var took []time.Duration
		before := available(b)
		for range boxes {
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
			box.Close()
			took = append(took, time.Since(begin))
			ids = append(ids, info.ID)
		}
		time.Sleep(2 * time.Second)
		b.ReportMetric(float64(before-available(b))/boxes/1024, "MB/box")
		var pids []int
		for _, id := range ids {
			pids = append(pids, pid1Of(b, root, id))
		}
		start := ticks(b, pids)
		time.Sleep(5 * time.Second)
		b.ReportMetric(float64(ticks(b, pids)-start)/5, "%core") // a tick is 10 ms
		slices.Sort(took[:20])
		slices.Sort(took[80:])
		b.ReportMetric(float64(took[90])/float64(took[10]), "last/first")
		for _, id := range ids {
			if err := p.Destroy(b.Context(), id); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// available is the machine's free memory in kB.
func available(tb testing.TB) int64 {
	tb.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatal("no MemAvailable")
	return 0
}

// ticks sums the processor time of the processes in hundredths of a second.
func ticks(tb testing.TB, pids []int) int64 {
	tb.Helper()
	var sum int64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			tb.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		for _, v := range f[11:13] {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
