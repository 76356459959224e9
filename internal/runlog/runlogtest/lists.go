package runlogtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

func names(p runlog.Page) string {
	var out []string
	for _, r := range p.Runs {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func testList(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	for i, m := range []runlog.Meta{
		{ID: "r1", Task: "a", Group: "g1"},
		{ID: "r2", Task: "b", Group: "g1", Eval: "e"},
		{ID: "r3", Task: "a", Group: "g2", Eval: "e"},
		{ID: "r4", Task: "a", Created: c.Now().Add(-time.Hour)}, // listed by its creation
		{ID: "r5", Task: "a"},                                   // at the same time as r6
		{ID: "r6", Task: "a"},
	} {
		if i < 5 {
			c.Add(time.Second)
		}
		if err := l.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for run, s := range map[string]runlog.Status{"r1": runlog.Passed, "r2": runlog.Failed, "r3": runlog.Running, "r4": runlog.Interrupted} {
		o := claim(t, l, run)
		add(t, o, started())
		if s.Ended() {
			add(t, o, ended(s))
		}
		if s != runlog.Running {
			release(t, o)
		} else {
			t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) })
		}
	}
	st := func(s ...runlog.Status) []runlog.Status { return s }
	for _, tt := range []struct {
		q    runlog.Query
		want string
	}{
		{runlog.Query{}, "r6 r5 r3 r2 r1 r4"},
		{runlog.Query{Task: "a"}, "r6 r5 r3 r1 r4"},
		{runlog.Query{Task: "a", Group: "g1"}, "r1"},
		{runlog.Query{Group: "g1"}, "r2 r1"},
		{runlog.Query{Eval: "e"}, "r3 r2"},
		{runlog.Query{Eval: "none"}, ""},
		{runlog.Query{Status: st(runlog.Queued)}, "r6 r5"},
		{runlog.Query{Status: st(runlog.Running)}, "r3"},
		{runlog.Query{Status: st(runlog.Interrupted)}, "r4"},
		{runlog.Query{Status: st(runlog.Running, runlog.Interrupted)}, "r3 r4"},
		{runlog.Query{Status: st(runlog.Passed)}, "r1"},
		{runlog.Query{Status: st(runlog.Passed, runlog.Failed, runlog.Interrupted)}, "r2 r1 r4"},
		{runlog.Query{Status: st(runlog.Passed, runlog.Queued), Task: "a"}, "r6 r5 r1"},
		{runlog.Query{Status: st(runlog.Skipped)}, ""},
	} {
		p, err := again(t).List(t.Context(), tt.q)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(p); got != tt.want || p.Next != "" {
			t.Errorf("%+v: got %q (next %q), want %q", tt.q, got, p.Next, tt.want)
		}
		for _, r := range p.Runs {
			if one := get(t, l, r.ID); fmt.Sprintf("%+v", one) != fmt.Sprintf("%+v", r) && r.Owner == nil {
				t.Errorf("List says %+v\nGet says  %+v", r, one)
			}
		}
	}
}

func pages(t *testing.T, l runlog.Log, q runlog.Query, between func()) []string {
	t.Helper()
	var got []string
	for {
		p, err := l.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Runs) > q.Limit || p.Next != "" && len(p.Runs) != q.Limit {
			t.Fatalf("limit %d: a page of %d", q.Limit, len(p.Runs))
		}
		got = append(got, strings.Fields(names(p))...)
		if p.Next == "" {
			return got
		}
		q.After = p.Next
		between()
	}
}

func testPages(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	var want []string
	for i := range 55 {
		if i%3 == 0 {
			c.Add(time.Second)
		}
		run := fmt.Sprintf("r%02d", i)
		create(t, l, run)
		want = append(want, run)
	}
	slices.Reverse(want)
	n := 0
	for _, limit := range []int{1, 7, 54, 55, 56} {
		got := pages(t, l, runlog.Query{Limit: limit, Task: "@local/~/b/hello"}, func() {
			if limit == 7 { // newer runs don't move the pages
				c.Add(time.Second)
				n++
				create(t, l, fmt.Sprintf("new%02d", n))
			}
		})
		got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "new") && limit > 7 })
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if p, err := l.List(t.Context(), runlog.Query{}); err != nil || len(p.Runs) != n+55 && len(p.Runs) != runlog.DefaultLimit {
		t.Errorf("%d runs, %v", len(p.Runs), err)
	}
	for _, after := range []string{"x", "1", "1.", "!.1"} {
		if p, err := l.List(t.Context(), runlog.Query{After: after}); err == nil {
			t.Errorf("After %q: %v", after, names(p))
		}
	}
}

// Whether a run is running or interrupted is no column, and pages are full all the same.
func testPagesOfTheLiving(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	var want []string
	for i := range 40 {
		run := fmt.Sprintf("r%02d", i)
		create(t, l, run)
		o := claim(t, l, run)
		add(t, o, started())
		if i%5 == 0 {
			want = append(want, run)
			t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) })
		} else {
			release(t, o)
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 3, 7, 8, 9} {
		got := pages(t, l, runlog.Query{Limit: limit, Status: []runlog.Status{runlog.Running}}, func() {})
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
	c.Add(2 * runlog.OwnerTTL)
	if got := pages(t, l, runlog.Query{Limit: 7, Status: []runlog.Status{runlog.Interrupted}}, func() {}); len(got) != 40 {
		t.Errorf("%d runs are interrupted, want all 40", len(got))
	}
}

func testResolve(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	for _, run := range []string{"@local/~/b/hello-11aa22bb", "@local/~/b/hello-11ccddee", "@local/~/b/bye-99aa22bb", "@local/~/b/bye-99aa22bbX", "shared-12345678", "100%_-abcdefgh"} {
		create(t, l, run)
		c.Add(time.Second)
	}
	for text, want := range map[string]string{
		"@local/~/b/hello-11aa22bb": "@local/~/b/hello-11aa22bb", // whole
		"11ccddee":                  "@local/~/b/hello-11ccddee", // suffix
		"ddee":                      "@local/~/b/hello-11ccddee",
		"@local/~/b/hello-11a":      "@local/~/b/hello-11aa22bb", // prefix
		"hello-11c":                 "@local/~/b/hello-11ccddee", // prefix of the last segment
		"sh":                        "shared-12345678",
		"@local/~/b/bye-99aa22bb":   "@local/~/b/bye-99aa22bb", // whole, and the prefix of another
		"100%":                      "100%_-abcdefgh",
		"bbX":                       "@local/~/b/bye-99aa22bbX",
	} {
		if got, err := l.Resolve(t.Context(), text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "HELLO-11c", "ello-11", "11cc", "%", "_-abcdefghi", "b/"} {
		_, err := l.Resolve(t.Context(), text)
		wantErr(t, err, runlog.ErrNotFound)
	}
	_, err := l.Resolve(t.Context(), "hello-11")
	if err == nil || !strings.Contains(err.Error(), "@local/~/b/hello-11ccddee, @local/~/b/hello-11aa22bb;") {
		t.Errorf("several: %v", err)
	}
	for i := range 7 {
		create(t, l, fmt.Sprintf("many-%d", i))
	}
	if _, err := l.Resolve(t.Context(), "many"); err == nil || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("many: %v", err)
	}
}
