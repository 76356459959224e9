// Package runlogtest is the suite that every runlog.Log passes.
package runlogtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// Open answers an empty log that goes by the clock now. Calling again answers another handle of the same log where there can be
// one, else the same. Handles are closed by the test's cleanup.
type Open func(t *testing.T, now func() time.Time) (again func(t *testing.T) runlog.Log)

// Run runs the suite; each test has a log of its own.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		test func(*testing.T, func(*testing.T) runlog.Log, *Clock)
	}{
		{"Empty", testEmpty},
		{"Create", testCreate},
		{"Epochs", testEpochs},
		{"Lapse", testLapse},
		{"Release", testRelease},
		{"Append", testAppend},
		{"Malformed", testMalformed},
		{"ConcurrentAppends", testConcurrentAppends},
		{"Status", testStatus},
		{"Events", testEvents},
		{"Follow", testFollow},
		{"FollowResumed", testFollowResumed},
		{"FollowCancelled", testFollowCancelled},
		{"Requests", testRequests},
		{"RequestsOfTheDead", testRequestsOfTheDead},
		{"ManyRequests", testManyRequests},
		{"List", testList},
		{"Pages", testPages},
		{"PagesOfTheLiving", testPagesOfTheLiving},
		{"Resolve", testResolve},
		{"Load", testLoad},
		{"Cancelled", testCancelled},
		{"Delete", testDelete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &Clock{at: time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)}
			tt.test(t, open(t, c.Now), c)
		})
	}
}

// Clock is a clock that tests move.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Add moves the clock on.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

const id = "@local/~/b/hello-1a2b3c4d"

func create(t *testing.T, l runlog.Log, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Create(t.Context(), runlog.Meta{ID: id, Task: "@local/~/b/hello", TaskVersion: 1, Label: "tasks/hello.json"}); err != nil {
			t.Fatal(err)
		}
	}
}

func claim(t *testing.T, l runlog.Log, id string) runlog.Owner {
	t.Helper()
	o, err := l.Claim(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func add(t *testing.T, o runlog.Owner, es ...runlog.Event) {
	t.Helper()
	if err := o.Append(t.Context(), es...); err != nil {
		t.Fatal(err)
	}
}

func release(t *testing.T, o runlog.Owner) {
	t.Helper()
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

func event(kind, step string, data any) runlog.Event {
	e := runlog.Event{Kind: kind, Step: step}
	if data != nil {
		b, err := json.Marshal(data)
		if err != nil {
			panic(err)
		}
		e.Data = b
	}
	return e
}

func started() runlog.Event {
	return event(runlog.RunStarted, "", runlog.RunStart{Steps: []runlog.StepInfo{{ID: "a", Type: "run_code"}, {ID: "b", Type: "verify_sandbox"}}})
}

func ended(s runlog.Status) runlog.Event { return event(runlog.RunEnded, "", runlog.RunEnd{Status: s}) }

func note(text string) runlog.Event {
	return event(runlog.Note, "", runlog.LogLine{Level: "info", Message: text})
}

func get(t *testing.T, l runlog.Log, id string) runlog.Summary {
	t.Helper()
	s, err := l.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantStatus(t *testing.T, l runlog.Log, want runlog.Status) {
	t.Helper()
	if s := get(t, l, id); s.Status != want {
		t.Fatalf("the run is %s, want %s", s.Status, want)
	}
}

// seqs gathers what Events yields.
func seqs(t *testing.T, l runlog.Log, id string, after uint64) []uint64 {
	t.Helper()
	var out []uint64
	for e, err := range l.Events(t.Context(), id, after) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Seq)
	}
	return out
}

func testEmpty(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	ctx := t.Context()
	_, err := l.Get(ctx, id)
	wantErr(t, err, runlog.ErrNotFound)
	if !strings.Contains(err.Error(), id) {
		t.Errorf("the error doesn't name the run: %v", err)
	}
	_, err = l.Claim(ctx, id)
	wantErr(t, err, runlog.ErrNotFound)
	wantErr(t, l.Ask(ctx, id, runlog.Request{Kind: "cancel"}), runlog.ErrNotFound)
	_, err = l.Resolve(ctx, "hello")
	wantErr(t, err, runlog.ErrNotFound)
	for _, walk := range []func() error{
		func() error {
			for _, err := range l.Events(ctx, id, 0) {
				return err
			}
			return nil
		},
		func() error {
			for _, err := range l.Follow(ctx, id, 0) {
				return err
			}
			return nil
		},
	} {
		wantErr(t, walk(), runlog.ErrNotFound)
	}
	if p, err := l.List(ctx, runlog.Query{}); err != nil || len(p.Runs) != 0 || p.Next != "" {
		t.Errorf("List: %+v, %v", p, err)
	}
}

func testCreate(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	m := runlog.Meta{
		ID: "@local/~/mein bündel/hello-1a2b3c4d", Task: "@local/~/mein bündel/hello", TaskVersion: 3, Label: "tasks/hello.json", Bundle: "/home/ä b/mein bündel",
		Group: "g1", Eval: "@local/~/e", Trial: 2, Labels: map[string]string{"b": "2", "a": "", "": "x"},
	}
	if err := l.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	wantErr(t, l.Create(t.Context(), runlog.Meta{ID: m.ID}), runlog.ErrExists)
	if err := l.Create(t.Context(), runlog.Meta{}); err == nil {
		t.Error("a run without an id")
	}
	s := get(t, again(t), m.ID)
	m.Created = c.Now().Truncate(time.Microsecond)
	if fmt.Sprintf("%+v", s.Meta) != fmt.Sprintf("%+v", m) || s.Status != runlog.Queued || s.Owner != nil || !s.Started.IsZero() || !s.Ended.IsZero() || s.Scores != nil {
		t.Errorf("got  %+v\nwant %+v", s, m)
	}
	m.ID, m.Created = "x", time.Date(2020, 1, 1, 0, 0, 0, 1999, time.FixedZone("", 7200))
	if err := l.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := get(t, l, "x").Created; got != m.Created.UTC().Truncate(time.Microsecond) {
		t.Errorf("Created is %v", got)
	}
}

func testEpochs(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l, other := again(t), again(t)
	create(t, l, id)
	a := claim(t, l, id)
	if a.Epoch() != 1 {
		t.Errorf("the first epoch is %d", a.Epoch())
	}
	for _, h := range []runlog.Log{l, other} {
		_, err := h.Claim(t.Context(), id)
		wantErr(t, err, runlog.ErrOwned)
		if !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("the error doesn't name the owner: %v", err)
		}
	}
	s := get(t, other, id)
	host, _ := os.Hostname()
	want := runlog.OwnerInfo{Host: host, PID: os.Getpid(), Epoch: 1, Until: c.Now().Add(runlog.OwnerTTL).Truncate(time.Microsecond)}
	if s.Owner == nil || *s.Owner != want {
		t.Errorf("the owner is %+v, want %+v", s.Owner, want)
	}
	add(t, a, started())

	// A process that was stopped, replaced and continued can write nothing more.
	c.Add(runlog.OwnerTTL + time.Second)
	b := claim(t, other, id)
	if b.Epoch() != 2 {
		t.Errorf("the second epoch is %d", b.Epoch())
	}
	wantErr(t, a.Append(t.Context(), note("from the past")), runlog.ErrFenced)
	wantErr(t, a.Append(t.Context()), runlog.ErrFenced)
	wantErr(t, a.Renew(t.Context()), runlog.ErrFenced)
	release(t, a) // gives up nothing
	add(t, b, note("from the present"))
	_, err := l.Claim(t.Context(), id)
	wantErr(t, err, runlog.ErrOwned)
	var texts []string
	for e, err := range l.Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, fmt.Sprint(e.Seq, e.Epoch, e.Kind))
	}
	if !slices.Equal(texts, []string{"1 1run.started", "2 2note"}) {
		t.Errorf("events %q", texts)
	}
	release(t, b)
}

func testLapse(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	for range 3 {
		c.Add(runlog.OwnerTTL - time.Second)
		if err := o.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := l.Claim(t.Context(), id)
		wantErr(t, err, runlog.ErrOwned)
	}
	c.Add(2 * runlog.OwnerTTL) // a lapse that nobody used
	if s := get(t, l, id); s.Owner != nil {
		t.Errorf("the owner after its time: %+v", s.Owner)
	}
	add(t, o, started())
	if err := o.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, l, runlog.Running)
	release(t, o)
}

func testRelease(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	release(t, o)
	release(t, o)
	wantErr(t, o.Append(t.Context(), note("x")), runlog.ErrFenced)
	wantErr(t, o.Renew(t.Context()), runlog.ErrFenced)
	if _, open := <-o.Requests(); open {
		t.Error("a request after Release")
	}
	o = claim(t, again(t), id)
	if o.Epoch() != 2 {
		t.Errorf("epoch %d", o.Epoch())
	}
	release(t, o)
}

func testAppend(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	at := time.Date(2026, 5, 1, 1, 2, 3, 4999, time.FixedZone("", -3600))
	in := []runlog.Event{
		started(),
		{Kind: runlog.StepStarted, Step: "a \"ä\"", Attempt: 2, Data: json.RawMessage(`{"type": "run_code" }`), At: at},
		{Kind: runlog.Note, Seq: 99, Epoch: 99},
	}
	add(t, o, in...)
	if in[0].Seq != 0 || in[0].Epoch != 0 {
		t.Error("Append changed the caller's events")
	}
	add(t, o) // nothing
	want := slices.Clone(in)
	for i := range want {
		want[i].Seq, want[i].Epoch = uint64(i+1), 1
		if want[i].At.IsZero() {
			want[i].At = c.Now()
		}
		want[i].At = want[i].At.UTC().Truncate(time.Microsecond)
	}
	var got []runlog.Event
	for e, err := range again(t).Events(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	release(t, o)
}

func testMalformed(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	for name, bad := range map[string]runlog.Event{
		"no kind":        {},
		"no JSON":        {Kind: runlog.Note, Data: json.RawMessage("{")},
		"no status":      {Kind: runlog.RunEnded, Data: json.RawMessage("{}")},
		"an open status": ended(runlog.Running),
		"another type":   {Kind: runlog.RunStarted, Data: json.RawMessage(`{"steps":7}`)},
	} {
		if err := o.Append(t.Context(), note("good"), bad, note("good")); err == nil || errors.Is(err, runlog.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	add(t, o, note("good"))
	if got := seqs(t, l, id, 0); !slices.Equal(got, []uint64{1}) {
		t.Errorf("events %v", got)
	}
	wantStatus(t, l, runlog.Queued)
	release(t, o)
}

func testConcurrentAppends(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	const runs, writers, each = 3, 8, 20
	var wg sync.WaitGroup
	for r := range runs {
		run := fmt.Sprint(id, r)
		create(t, l, run)
		o := claim(t, l, run)
		t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) })
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if err := o.Append(t.Context(), event(runlog.StepLog, fmt.Sprint(w), i), event(runlog.StepLog, fmt.Sprint(w), i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for r := range runs {
		next := map[string]int{}
		seq := uint64(0)
		for e, err := range again(t).Events(t.Context(), fmt.Sprint(id, r), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if seq++; e.Seq != seq {
				t.Fatalf("seq %d, want %d", e.Seq, seq)
			}
			if want := fmt.Sprint(next[e.Step] / 2); string(e.Data) != want {
				t.Fatalf("writer %s: %s, want %s", e.Step, e.Data, want)
			}
			next[e.Step]++
		}
		if seq != 2*writers*each {
			t.Errorf("%d events", seq)
		}
	}
}

func testStatus(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	create(t, l, id)
	wantStatus(t, l, runlog.Queued)
	o := claim(t, l, id)
	wantStatus(t, l, runlog.Queued)
	add(t, o, started())
	wantStatus(t, l, runlog.Running)
	first := c.Now().Truncate(time.Microsecond)
	release(t, o)
	wantStatus(t, l, runlog.Interrupted)
	c.Add(time.Minute)
	o = claim(t, again(t), id)
	wantStatus(t, l, runlog.Running)
	add(t, o, started())
	c.Add(runlog.OwnerTTL)
	wantStatus(t, l, runlog.Interrupted) // its time is over
	if err := o.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(t, o, event(runlog.RunEnded, "", runlog.RunEnd{Status: runlog.Scored, Scores: map[string]float64{"b": 0.5, "a": 1}, Error: "half"}))
	s := get(t, again(t), id)
	if s.Status != runlog.Scored || s.Error != "half" || fmt.Sprint(s.Scores) != "map[a:1 b:0.5]" || !s.Started.Equal(first) ||
		!s.Ended.Equal(c.Now().Truncate(time.Microsecond)) || s.Owner != nil && s.Owner.Epoch != 2 {
		t.Errorf("%+v", s)
	}
	release(t, o)
	wantStatus(t, l, runlog.Scored)
	// A run that has ended may be claimed and started again.
	o = claim(t, l, id)
	add(t, o, started())
	s = get(t, l, id)
	if s.Status != runlog.Running || s.Error != "" || s.Scores != nil || !s.Ended.IsZero() || !s.Started.Equal(first) {
		t.Errorf("%+v", s)
	}
	release(t, o)
}

func testLoad(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	add(t, o, started(), event(runlog.StepStarted, "a", runlog.StepStart{Type: "run_code"}))
	release(t, o)
	r, err := runlog.Load(t.Context(), l, id)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != id || r.Status != runlog.Interrupted || len(r.Steps) != 2 || r.Steps[0].Status != runlog.Interrupted || r.Steps[1].Status != runlog.Queued {
		t.Errorf("%+v", r)
	}
	s := get(t, l, id)
	if fmt.Sprintf("%+v", r.Summary) != fmt.Sprintf("%+v", s) {
		t.Errorf("the fold says %+v\nthe log says  %+v", r.Summary, s)
	}
	_, err = runlog.Load(t.Context(), l, "nothing")
	wantErr(t, err, runlog.ErrNotFound)
}

func testCancelled(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, gerr := l.Get(ctx, id)
	_, lerr := l.List(ctx, runlog.Query{})
	_, rerr := l.Resolve(ctx, id)
	_, cerr := l.Claim(ctx, id)
	for name, err := range map[string]error{
		"Get": gerr, "List": lerr, "Resolve": rerr, "Claim": cerr, "Create": l.Create(ctx, runlog.Meta{ID: "x"}),
		"Ask": l.Ask(ctx, id, runlog.Request{}), "Append": o.Append(ctx, note("x")), "Renew": o.Renew(ctx),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := seqs(t, l, id, 0); len(got) != 0 {
		t.Errorf("events %v", got)
	}
	release(t, o)
}
