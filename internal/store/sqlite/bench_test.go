package sqlite_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/store/storetest"
)

// cpu is what this process has used.
func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func reportCPU(b *testing.B, start time.Duration) {
	b.ReportMetric(float64((cpu()-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// writeUniverse commits n small objects, each with a document and a ledger row, in one stage.
func writeUniverse(tb testing.TB, s store.Store, n int) {
	g, err := s.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		d, _, err := g.Put(bytes.NewReader(fmt.Appendf(nil, "the content of file %d of the universe", i)))
		if err != nil {
			tb.Fatal(err)
		}
		id := fmt.Sprintf("@local/agentenv-framework/universe/files/folder-%d__file", i)
		g.Doc(store.Doc{
			Kind: store.Artifact, ID: id, Version: 1, Type: "file", Owner: "@local/agentenv-framework/universe", Objects: []ref.Digest{d},
			Body: fmt.Appendf(nil, `{"id":%q,"version":1,"type":"file","description":"","filename":"file.txt","content_type":"text/plain","object_url":%q,"s3_url":%q}`, id, d, d),
		}, store.Absent)
		g.Doc(store.Doc{
			Kind: store.Ledger, ID: "artifact " + id, Version: 1, Type: "file", Owner: "@local/agentenv-framework/universe",
			Body: fmt.Appendf(nil, `{"digest":%q,"scheme":2,"inputs":{"config":null,"files":{"file.txt":%q}}}`, d, d),
		}, store.Absent)
	}
	if err := g.Commit(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// 1,500 files: 3,000 documents and 1,500 objects in one stage. Budget 60 ms of CPU, opening and closing included.
func BenchmarkUniverse1500(b *testing.B) {
	dir := b.TempDir()
	start := cpu()
	for n := 0; b.Loop(); n++ {
		s := open(b, filepath.Join(dir, fmt.Sprint(n)))
		writeUniverse(b, s, 1500)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, start)
}

// What a dry run of the same asks: the latest version of every document and ledger row.
func BenchmarkLatest3000(b *testing.B) {
	root := b.TempDir()
	s := open(b, root)
	writeUniverse(b, s, 1500)
	var ids, ledger []string
	for i := range 1500 {
		id := fmt.Sprintf("@local/agentenv-framework/universe/files/folder-%d__file", i)
		ids, ledger = append(ids, id), append(ledger, "artifact "+id)
	}
	start := cpu()
	for b.Loop() {
		for kind, list := range map[store.Kind][]string{store.Artifact: ids, store.Ledger: ledger} {
			m, err := s.Latest(b.Context(), kind, list)
			if err != nil || len(m) != 1500 {
				b.Fatal(len(m), err)
			}
		}
	}
	reportCPU(b, start)
}

func BenchmarkListDocuments10000(b *testing.B) {
	s := open(b, b.TempDir())
	writeUniverse(b, s, 10_000)
	start := cpu()
	for b.Loop() {
		p, err := s.List(b.Context(), store.Query{Kind: store.Artifact, Limit: 10_000})
		if err != nil || len(p.Docs) != 10_000 {
			b.Fatal(len(p.Docs), err)
		}
	}
	reportCPU(b, start)
}

// Reading one document from a store that was just opened: what a short command pays.
func BenchmarkOpenGetClose(b *testing.B) {
	root := b.TempDir()
	writeUniverse(b, open(b, root), 10)
	start := cpu()
	for b.Loop() {
		s := open(b, root)
		if _, err := s.Get(b.Context(), store.Artifact, "@local/agentenv-framework/universe/files/folder-3__file", 0); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, start)
}

// What a short run costs here: with a store to make, and with one that is there.
func BenchmarkShortRun(b *testing.B) {
	for _, fresh := range []bool{true, false} {
		b.Run(fmt.Sprintf("fresh=%v", fresh), func(b *testing.B) {
			dir := b.TempDir()
			root := filepath.Join(dir, "store")
			start := cpu()
			for n := 0; b.Loop(); n++ {
				if fresh {
					root = filepath.Join(dir, fmt.Sprint(n))
				}
				s, err := sqlite.Open(root, sqlite.Options{})
				if err != nil {
					b.Fatal(err)
				}
				writeHello(b, s, fmt.Sprint("run-", n), n == 0 || fresh)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			reportCPU(b, start)
		})
	}
}

// writeHello writes a bundle of one file and one task the first time, and records a run of three steps.
func writeHello(b *testing.B, s *sqlite.Store, id string, first bool) {
	if _, err := s.Latest(b.Context(), store.Artifact, []string{"greeting"}); err != nil {
		b.Fatal(err)
	}
	if first {
		writeUniverse(b, s, 2)
	}
	l := s.Runs()
	if err := l.Create(b.Context(), runlog.Meta{ID: id}); err != nil {
		b.Fatal(err)
	}
	o, err := l.Claim(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	for range 6 {
		if err := o.Append(b.Context(), runlog.Event{Kind: runlog.StepLog, Step: "hello", Data: []byte(`{"level":"info","message":"x"}`)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := o.Append(b.Context(), runlog.Event{Kind: runlog.RunEnded, Data: []byte(`{"status":"passed"}`)}); err != nil {
		b.Fatal(err)
	}
	if err := o.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func gibFile(b *testing.B) (string, int64) {
	path := filepath.Join(b.TempDir(), "gib")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := storetest.Bytes(1<<20, 1)
	const size = 1 << 30
	for i := range size >> 20 {
		copy(block, fmt.Sprintf("%d ", i))
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return path, size
}

// A put of 1 GiB beside `cp` and `sync` of the same file in the same run. Budget: 1.3x, memory flat.
func BenchmarkPutGiB(b *testing.B) {
	path, size := gibFile(b)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"file":   func(r io.Reader) io.Reader { return r },
		"stream": func(r io.Reader) io.Reader { return struct{ io.Reader }{r} },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			dir := b.TempDir()
			put, cp := time.Hour, time.Hour // the best of each: neighbours and the disk's own moods only add
			before := peakRSS()
			var used time.Duration
			for n := 0; b.Loop(); n++ {
				t0, c0 := time.Now(), cpu()
				s := open(b, filepath.Join(dir, "store"))
				g, err := s.Begin(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := g.Put(wrap(f)); err != nil {
					b.Fatal(err)
				}
				if err := g.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
				f.Close()
				s.Close()
				put = min(put, time.Since(t0))
				used += cpu() - c0
				b.StopTimer()
				os.RemoveAll(filepath.Join(dir, "store"))
				t0 = time.Now()
				out := filepath.Join(dir, "copy")
				if err := exec.CommandContext(b.Context(), "sh", "-c", `cp "$1" "$2" && sync "$2"`, "sh", path, out).Run(); err != nil {
					b.Fatal(err)
				}
				cp = min(cp, time.Since(t0))
				os.Remove(out)
				b.StartTimer()
			}
			b.ReportMetric(put.Seconds()/cp.Seconds(), "best-x-cp")
			b.ReportMetric(put.Seconds(), "best-s")
			b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(peakRSS()-before)/(1<<20), "rss-growth-MB")
		})
	}
}

// peakRSS is the largest memory this process has held, in bytes.
func peakRSS() int64 {
	runtime.GC()
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Maxrss << 10
}

func makeRuns(tb testing.TB, l runlog.Log, n int) {
	for i := range n {
		m := runlog.Meta{
			ID: fmt.Sprintf("@local/agentenv-framework/hello/hello-%08x", i), Task: "@local/agentenv-framework/hello/hello", TaskVersion: 1,
			Label: "tasks/hello.json", Bundle: "/home/user/bundles/hello", Group: fmt.Sprintf("g-%d", i/10),
		}
		if err := l.Create(tb.Context(), m); err != nil {
			tb.Fatal(err)
		}
		o, err := l.Claim(tb.Context(), m.ID)
		if err != nil {
			tb.Fatal(err)
		}
		end := runlog.Event{Kind: runlog.RunEnded, Data: []byte(`{"status":"passed","scores":{"hello":1}}`)}
		if i%100 == 0 {
			end = runlog.Event{Kind: runlog.Note} // interrupted
		}
		if err := o.Append(tb.Context(), runlog.Event{Kind: runlog.RunStarted, Data: []byte(`{"steps":[{"id":"hello","type":"verify_sandbox"}]}`)}, end); err != nil {
			tb.Fatal(err)
		}
		if err := o.Release(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkListRuns10000(b *testing.B) {
	s := open(b, b.TempDir())
	makeRuns(b, s.Runs(), 10_000)
	start := cpu()
	for b.Loop() {
		p, err := s.Runs().List(b.Context(), runlog.Query{Limit: 10_000})
		if err != nil || len(p.Runs) != 10_000 {
			b.Fatal(len(p.Runs), err)
		}
	}
	reportCPU(b, start)
}

// 500 steps, each with a start and an end of its own, one after the other. Budget 40 ms of CPU.
func BenchmarkRun500Steps(b *testing.B) {
	s := open(b, b.TempDir())
	start := cpu()
	for n := 0; b.Loop(); n++ {
		id := fmt.Sprint("run-", n)
		if err := s.Runs().Create(b.Context(), runlog.Meta{ID: id}); err != nil {
			b.Fatal(err)
		}
		o, err := s.Runs().Claim(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 500 {
			step := fmt.Sprint("step-", i)
			for _, e := range []runlog.Event{
				{Kind: runlog.StepStarted, Step: step, Attempt: 1, Data: []byte(`{"type":"verify_sandbox"}`)},
				{Kind: runlog.StepEnded, Step: step, Attempt: 1, Data: []byte(`{"status":"succeeded","seconds":0.012,"diff":[{"op":"set","path":"metadata/verifications/x","value":1}]}`)},
			} {
				if err := o.Append(b.Context(), e); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := o.Append(b.Context(), runlog.Event{Kind: runlog.RunEnded, Data: []byte(`{"status":"passed"}`)}); err != nil {
			b.Fatal(err)
		}
		if err := o.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, start)
}
