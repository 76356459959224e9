package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// A page of 10,000 runs is read in under 20 ms; the limit here leaves room for a busy machine.
func TestManyRunsAreListedQuickly(t *testing.T) {
	s := openT(t, t.TempDir())
	const n = 10_000
	err := s.write(t.Context(), relaxed, func(c *conn) error {
		for i := range n {
			m := runlog.Meta{
				ID: fmt.Sprintf("@local/agentenv-framework/hello/hello-%08x", i), Task: "@local/agentenv-framework/hello/hello", TaskVersion: 1,
				Label: "tasks/hello.json", Bundle: "/home/user/bundles/hello", Group: "g", Created: time.UnixMicro(int64(1e15 + i)),
			}
			sum := runlog.Summary{Status: runlog.Passed, Started: m.Created, Ended: m.Created, Scores: map[string]float64{"hello": 1}}
			if _, err := c.exec(context.WithoutCancel(t.Context()), "INSERT INTO runs VALUES(?,?,?,?,?,?,?,?,?,?,?,1,'host',1,1,'boot',0,0)", int64(i+1), m.ID, m.Task, m.Group, m.Eval,
				m.Created.UnixMicro(), string(sum.Status), micros(sum.Started), micros(sum.Ended), runlog.PackMeta(m), runlog.PackState(sum)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	for range 10 {
		start := time.Now()
		p, err := s.Runs().List(t.Context(), runlog.Query{Limit: n})
		best = min(best, time.Since(start))
		if err != nil || len(p.Runs) != n || p.Next != "" || p.Runs[0].ID[len(p.Runs[0].ID)-8:] != "0000270f" || p.Runs[n-1].Scores["hello"] != 1 {
			t.Fatal(len(p.Runs), p.Next, err)
		}
	}
	t.Logf("best %v", best)
	if limit := 100 * time.Millisecond; best > limit {
		t.Errorf("a page of %d runs took %v at best, want less than %v", n, best, limit)
	}
}

func TestProcess(t *testing.T) {
	me := self()
	if me.pid != os.Getpid() || me.host == "" || me.gone(me) {
		t.Errorf("%+v", me)
	}
	if runtime.GOOS != "linux" {
		return
	}
	for name, tt := range map[string]struct {
		change func(*process)
		gone   bool
	}{
		"another start":  {func(p *process) { p.started-- }, true},
		"no such pid":    {func(p *process) { p.pid = 1 << 30 }, true},
		"another boot":   {func(p *process) { p.pid, p.boot = 1<<30, "x" }, false},
		"another host":   {func(p *process) { p.pid, p.host = 1<<30, "x" }, false},
		"unknown boot":   {func(p *process) { p.pid, p.boot = 1<<30, "" }, false},
		"unknown start":  {func(p *process) { p.started = 0 }, false},
		"nothing at all": {func(p *process) { *p = process{} }, false},
	} {
		p := me
		tt.change(&p)
		if p.gone(me) != tt.gone {
			t.Errorf("%s: gone is %v", name, !tt.gone)
		}
	}
}

// While a commit is under way, appends gather, and one commit serves them all.
func TestGroupCommit(t *testing.T) {
	s := openT(t, t.TempDir())
	l := s.runs
	if err := l.Create(t.Context(), runlog.Meta{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	o, err := l.Claim(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	commits := func() (n int) {
		t.Helper()
		b, err := os.ReadFile(s.file() + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		const header, frame, page = 32, 24, 4096
		for at := header; at+frame+page <= len(b); at += frame + page {
			if binary.BigEndian.Uint32(b[at+4:]) != 0 { // the last frame of a transaction holds the size of the file
				n++
			}
		}
		return n
	}
	before := commits()
	w := <-s.writer // nobody can commit now
	const n = 50
	done := make(chan error, n)
	for range n {
		go func() { done <- o.Append(context.WithoutCancel(t.Context()), runlog.Event{Kind: runlog.Note}) }()
	}
	waiting := func() int { l.appends.mu.Lock(); defer l.appends.mu.Unlock(); return len(l.appends.waiting) }
	for waiting() < n-1 {
		runtime.Gosched()
	}
	// One that gives up leaves the others alone.
	ctx, cancel := context.WithCancel(t.Context())
	quit := make(chan error, 1)
	go func() { quit <- o.Append(ctx, runlog.Event{Kind: "never"}) }()
	for waiting() < n {
		runtime.Gosched()
	}
	cancel()
	if err := <-quit; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.writer <- w
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := commits() - before; got != 2 { // the first of them, and all others
		t.Errorf("%d commits for %d appends, want two", got, n)
	}
	seen := 0
	for e, err := range l.Events(t.Context(), "r", 0) {
		if seen++; err != nil || e.Seq != uint64(seen) || e.Kind != runlog.Note {
			t.Fatal(e, err)
		}
	}
	if seen != n {
		t.Errorf("%d events, want %d", seen, n)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Close ends followers, and the store can be opened again.
func TestCloseEndsFollowers(t *testing.T) {
	root := t.TempDir()
	s := openT(t, root)
	if err := s.Runs().Create(t.Context(), runlog.Meta{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	started := make(chan struct{})
	go func() {
		close(started)
		var last error
		for _, err := range s.Runs().Follow(t.Context(), "r", 0) {
			last = err
		}
		ended <- last
	}()
	<-started
	time.Sleep(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := openT(t, root).Runs().Get(t.Context(), "r"); err != nil {
		t.Error(err)
	}
}
