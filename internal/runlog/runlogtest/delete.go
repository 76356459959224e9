package runlogtest

import (
	"slices"
	"testing"

	"agentenv.internal/agentenv/internal/runlog"
)

// testDelete: a log that can forget runs forgets what nobody drives, whole, and nothing else.
func testDelete(t *testing.T, again func(*testing.T) runlog.Log, c *Clock) {
	l := again(t)
	d, ok := l.(runlog.Deleter)
	if !ok {
		t.Skip("this log forgets nothing")
	}
	create(t, l, "lapsed", "done", "driven", "queued", "last")
	lapsed := claim(t, l, "lapsed")
	add(t, lapsed, started())
	c.Add(2 * runlog.OwnerTTL)
	done, driven := claim(t, l, "done"), claim(t, l, "driven")
	add(t, done, started(), ended(runlog.Passed))
	release(t, done)
	add(t, driven, started())
	last := claim(t, l, "last")
	add(t, last, started(), ended(runlog.Failed))
	release(t, last)
	if err := l.Ask(t.Context(), "lapsed", runlog.Request{Kind: runlog.AskCancel}); err != nil {
		t.Fatal(err)
	}

	got, err := d.Delete(t.Context(), "done", "nosuch", "driven", "lapsed", "queued", "last", "done")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"done", "lapsed"}; !slices.Equal(got, want) {
		t.Fatalf("forgot %v, want %v", got, want)
	}
	for _, id := range got {
		_, err := l.Get(t.Context(), id)
		wantErr(t, err, runlog.ErrNotFound)
		for _, err := range l.Events(t.Context(), id, 0) {
			wantErr(t, err, runlog.ErrNotFound)
		}
		for _, err := range l.Follow(t.Context(), id, 0) {
			wantErr(t, err, runlog.ErrNotFound)
		}
	}
	page, err := l.List(t.Context(), runlog.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, r := range page.Runs {
		left = append(left, r.ID)
	}
	slices.Sort(left)
	if want := []string{"driven", "last", "queued"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}

	// What is made after it has nothing of what is gone, and no owner of a run that is gone can write into it.
	create(t, l, "lapsed", "new")
	wantErr(t, lapsed.Append(t.Context(), note("late")), runlog.ErrFenced)
	wantErr(t, lapsed.Renew(t.Context()), runlog.ErrFenced)
	o := claim(t, l, "lapsed")
	select {
	case q := <-o.Requests():
		t.Errorf("a request of the run before: %+v", q)
	default:
	}
	add(t, o, started())
	add(t, driven, note("on"))
	for e, err := range l.Events(t.Context(), "lapsed", 0) {
		if err != nil || e.Seq != 1 || e.Kind != runlog.RunStarted {
			t.Errorf("%+v, %v", e, err)
		}
	}
}
