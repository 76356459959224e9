package runlogtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// limit is how long a test waits for what another handle does, which takes a polling time.
const limit = 10 * time.Second

func testEvents(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id, "other")
	o, other := claim(t, l, id), claim(t, l, "other")
	const n = 1300
	for i := 0; i < n; i += 100 {
		var es []runlog.Event
		for j := range 100 {
			es = append(es, note(fmt.Sprint(i+j)))
		}
		add(t, o, es...)
		add(t, other, note("not here"))
	}
	for _, after := range []uint64{0, 1, 511, 512, 513, n - 1, n, n + 5} {
		got := seqs(t, l, id, after)
		if want := max(0, n-int(after)); len(got) != want || want > 0 && (got[0] != after+1 || got[want-1] != n) {
			t.Errorf("after %d: %d events", after, len(got))
		}
	}
	for e, err := range l.Events(t.Context(), id, 0) { // a caller that stops
		if err != nil || e.Seq == 3 {
			break
		}
	}
	release(t, o)
	release(t, other)
}

type followed struct {
	e   runlog.Event
	err error
}

// follow walks in a goroutine; the channel is closed when the walk ends.
func follow(ctx context.Context, l runlog.Log, after uint64) <-chan followed {
	out := make(chan followed)
	go func() {
		defer close(out)
		for e, err := range l.Follow(ctx, id, after) {
			out <- followed{e, err}
		}
	}()
	return out
}

func next(t *testing.T, c <-chan followed) (followed, bool) {
	t.Helper()
	select {
	case f, ok := <-c:
		return f, ok
	case <-time.After(limit):
		t.Fatal("nothing comes")
		return followed{}, false
	}
}

func wantNext(t *testing.T, c <-chan followed, seq uint64) {
	t.Helper()
	if f, ok := next(t, c); !ok || f.err != nil || f.e.Seq != seq {
		t.Fatalf("got %+v (%v), want event %d", f, ok, seq)
	}
}

func wantEnd(t *testing.T, c <-chan followed) {
	t.Helper()
	if f, ok := next(t, c); ok {
		t.Fatalf("got %+v, want the end", f)
	}
}

func testFollow(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	add(t, o, started())
	walks := []<-chan followed{follow(t.Context(), l, 0), follow(t.Context(), again(t), 0), follow(t.Context(), again(t), 0)}
	late := follow(t.Context(), again(t), 2)
	for seq := uint64(2); seq < 5; seq++ {
		for _, w := range walks {
			wantNext(t, w, seq-1)
		}
		add(t, o, note("more"))
	}
	wantNext(t, late, 3)
	add(t, o, ended(runlog.Passed))
	for _, w := range walks {
		wantNext(t, w, 4)
		wantNext(t, w, 5)
		wantEnd(t, w)
	}
	wantNext(t, late, 4)
	wantNext(t, late, 5)
	wantEnd(t, late)
	release(t, o)
	// After the end, what is there and no waiting.
	all := follow(t.Context(), again(t), 3)
	wantNext(t, all, 4)
	wantNext(t, all, 5)
	wantEnd(t, all)
	wantEnd(t, follow(t.Context(), l, 5))
	wantEnd(t, follow(t.Context(), l, 99))
}

func testFollowResumed(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	create(t, l, id)
	w := follow(t.Context(), l, 0) // before there is anything
	a := claim(t, l, id)
	add(t, a, started())
	wantNext(t, w, 1)
	c.Add(2 * runlog.OwnerTTL)
	b := claim(t, again(t), id)
	wantErr(t, a.Append(t.Context(), note("x")), runlog.ErrFenced)
	add(t, b, started())
	wantNext(t, w, 2)
	add(t, b, ended(runlog.Failed))
	wantNext(t, w, 3)
	wantEnd(t, w)
	release(t, a)
	release(t, b)
}

func testFollowCancelled(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	add(t, o, started())
	ctx, cancel := context.WithCancel(t.Context())
	w := follow(ctx, again(t), 0)
	wantNext(t, w, 1)
	cancel()
	if f, ok := next(t, w); !ok || !errors.Is(f.err, context.Canceled) {
		t.Errorf("got %+v, %v", f, ok)
	}
	wantEnd(t, w)
	for range l.Follow(t.Context(), id, 0) {
		break // a caller that stops
	}
	release(t, o)
}

func request(t *testing.T, o runlog.Owner) runlog.Request {
	t.Helper()
	select {
	case q, ok := <-o.Requests():
		if !ok {
			t.Fatal("the requests were closed")
		}
		return q
	case <-time.After(limit):
		t.Fatal("no request comes")
		return runlog.Request{}
	}
}

func noRequest(t *testing.T, o runlog.Owner) {
	t.Helper()
	select {
	case q, ok := <-o.Requests():
		t.Fatalf("got %+v, %v", q, ok)
	case <-time.After(150 * time.Millisecond):
	}
}

func ask(t *testing.T, l runlog.Log, kind string) {
	t.Helper()
	if err := l.Ask(t.Context(), id, runlog.Request{Kind: kind, Step: "a", Data: []byte(`{"x": 1}`)}); err != nil {
		t.Fatal(err)
	}
}

func testRequests(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id, "other")
	ask(t, l, "early") // before there is an owner
	o, other := claim(t, l, id), claim(t, l, "other")
	ask(t, again(t), "cancel")
	ask(t, l, "decide")
	var got []string
	for range 3 {
		q := request(t, o)
		got = append(got, fmt.Sprint(q.Seq, q.Kind, q.Step, string(q.Data)))
	}
	if want := []string{`1earlya{"x": 1}`, `2cancela{"x": 1}`, `3decidea{"x": 1}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	noRequest(t, o)
	noRequest(t, other)
	add(t, o, ended(runlog.Cancelled))
	wantErr(t, l.Ask(t.Context(), id, runlog.Request{Kind: "cancel"}), runlog.ErrEnded)
	release(t, o)
	// What an owner was given, or what came too late for it, isn't given to the next.
	o = claim(t, l, id)
	add(t, o, started())
	noRequest(t, o)
	ask(t, again(t), "again")
	if q := request(t, o); q.Kind != "again" || q.Seq != 4 {
		t.Errorf("got %+v", q)
	}
	release(t, o)
	release(t, other)
}

// A claim that another has replaced is given nothing more, though nobody released it.
func testRequestsOfTheDead(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l, m := again(t), again(t)
	create(t, l, id)
	a := claim(t, l, id)
	c.Add(2 * runlog.OwnerTTL)
	b := claim(t, m, id)
	ask(t, l, "cancel")
	if q := request(t, b); q.Kind != "cancel" {
		t.Errorf("got %+v", q)
	}
	noRequest(t, a)
	release(t, a)
	release(t, b)
}

func testManyRequests(t *testing.T, again func(*testing.T) runlog.Log, _ *Clock) {
	l := again(t)
	create(t, l, id)
	o := claim(t, l, id)
	const n = 3 * runlog.RequestBuffer / 2
	for range n {
		ask(t, l, "decide")
	}
	for i := range n {
		if q := request(t, o); q.Seq != uint64(i+1) {
			t.Fatalf("request %d came as number %d", q.Seq, i+1)
		}
		if i == 0 {
			if err := o.Renew(t.Context()); err != nil { // owners do, time and again
				t.Fatal(err)
			}
		}
		if i%10 == 9 {
			if err := o.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	noRequest(t, o)
	release(t, o)
}
