package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// Of 100,000 runs the newest ones, those of one task and those in one state are listed in under 20 ms. What has to read many rows, a page of 10,000 or finding
// a run by the end of its id, takes 20 to 30 ms; its limit leaves room for a busy machine.
func TestManyRunsAreListedQuickly(t *testing.T) {
	if raced {
		t.Skip("times are measured without the race detector")
	}
	s := openT(t, t.TempDir())
	const n = 100_000
	err := s.write(t.Context(), relaxed, func(c *conn) error {
		for i := range n {
			m := runlog.Meta{
				ID: fmt.Sprintf("@local/agentenv-framework/hello/hello-%08x", i), Task: "@local/agentenv-framework/hello/hello", TaskVersion: 1,
				Label: "tasks/hello.json", Bundle: "/home/user/bundles/hello", Group: "g", Created: time.UnixMicro(int64(1e15 + i)),
			}
			sum := runlog.Summary{Status: runlog.Passed, Started: m.Created, Ended: m.Created, Scores: map[string]float64{"hello": 1}}
			if i%100 == 0 {
				m.Task, sum.Status = "@local/rare", runlog.Failed
			}
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
	for _, tt := range []struct {
		name  string
		q     runlog.Query
		first string // end of the newest run's id
	}{
		{"the newest 20", runlog.Query{Limit: 20}, "0001869f"},
		{"a page of 10,000", runlog.Query{Limit: 10_000}, "0001869f"},
		{"a task's", runlog.Query{Limit: 20, Task: "@local/rare"}, "0001863c"},
		{"the failed ones", runlog.Query{Limit: 20, Status: []runlog.Status{runlog.Failed}}, "0001863c"},
		{"the running ones", runlog.Query{Limit: 20, Status: []runlog.Status{runlog.Running}}, ""},
	} {
		limit := 20 * time.Millisecond
		if tt.q.Limit > 1000 {
			limit = 150 * time.Millisecond
		}
		quick(t, tt.name, limit, func() error {
			p, err := s.Runs().List(t.Context(), tt.q)
			if err != nil {
				return err
			}
			if tt.first == "" {
				if len(p.Runs) != 0 {
					return fmt.Errorf("%d runs", len(p.Runs))
				}
				return nil
			}
			if len(p.Runs) != tt.q.Limit || p.Next == "" || !strings.HasSuffix(p.Runs[0].ID, tt.first) || p.Runs[0].Scores["hello"] != 1 {
				return fmt.Errorf("%d runs, next %q", len(p.Runs), p.Next)
			}
			return nil
		})
	}
	quick(t, "a run by the end of its id", 150*time.Millisecond, func() error {
		id, err := s.Runs().Resolve(t.Context(), "0000abcd")
		if err == nil && !strings.HasSuffix(id, "hello-0000abcd") {
			err = errors.New(id)
		}
		return err
	})
}

// quick holds the best of ten tries to a limit.
func quick(t *testing.T, what string, limit time.Duration, f func() error) {
	t.Helper()
	best := time.Hour
	for range 10 {
		start := time.Now()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		best = min(best, time.Since(start))
	}
	t.Logf("%s: best %v", what, best)
	if best > limit {
		t.Errorf("%s took %v at best, want less than %v", what, best, limit)
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
	write := func() { done <- o.Append(context.WithoutCancel(t.Context()), runlog.Event{Kind: runlog.Note}) }
	queue := func() (leading bool, waiting int) {
		l.appends.mu.Lock()
		defer l.appends.mu.Unlock()
		return l.appends.leading, len(l.appends.waiting)
	}
	until := func(waiting int) {
		for leading, w := queue(); !leading || w != waiting; leading, w = queue() {
			runtime.Gosched()
		}
	}
	go write()
	until(0) // it has begun to commit, itself alone
	for range n - 1 {
		go write()
	}
	until(n - 1)
	// One that gives up leaves the others alone.
	ctx, cancel := context.WithCancel(t.Context())
	quit := make(chan error, 1)
	go func() { quit <- o.Append(ctx, runlog.Event{Kind: "never"}) }()
	until(n)
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
