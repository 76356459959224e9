package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/runlog"
)

// owner is one claim of a run. last and sum are used only within the store's write transactions, one at a time.
type owner struct {
	l        *log
	id       string
	run      int64
	epoch    uint64
	requests chan runlog.Request
	released atomic.Bool

	last uint64 // seq of the newest event
	sum  runlog.Summary
	seen standing // when the claim was last found to hold
}

// standing is a moment of the runs table as one connection sees it: while it stays the same, no claim has changed.
type standing struct {
	of     *conn
	others int64  // commits of other connections, by SQLite's data_version
	own    uint64 // what this process did to claims
}

// Claim makes the caller the owner of a run that nobody renews. A process that has ended gives its runs up at once.
func (l *log) Claim(ctx context.Context, id string) (runlog.Owner, error) {
	o := &owner{l: l, id: id, requests: make(chan runlog.Request, runlog.RequestBuffer)}
	me := l.me()
	err := l.s.write(ctx, relaxed, func(c *conn) error {
		inner := context.WithoutCancel(ctx)
		now := l.s.now()
		var was claimed
		err := c.query(inner, "SELECT seq, meta, state, epoch, host, pid, pid_started, boot, until FROM runs WHERE id=?", func(r []driver.Value) (err error) {
			o.run = num(r[0])
			was = claimed{uint64(num(r[3])), fromMicros(num(r[8])), process{str(r[4]), int(num(r[5])), num(r[6]), str(r[7])}}
			if o.sum, err = runlog.Unpack(blob(r[1]), blob(r[2])); err != nil {
				err = fmt.Errorf("%w: %w", err, errDamaged)
			}
			return err
		}, id)
		switch {
		case err != nil:
			return err
		case o.run == 0:
			return runlog.NotFound(id)
		case was.live(now, me):
			return runlog.Owned(id, *was.info())
		}
		o.epoch = was.epoch + 1
		if err := c.query(inner, "SELECT coalesce(max(seq), 0) FROM events WHERE run=?", func(r []driver.Value) error {
			o.last = uint64(num(r[0]))
			return nil
		}, o.run); err != nil {
			return err
		}
		l.claims++
		_, err = c.exec(inner, "UPDATE runs SET epoch=?, host=?, pid=?, pid_started=?, boot=?, until=? WHERE seq=?",
			int64(o.epoch), me.host, int64(me.pid), me.started, me.boot, now.Add(runlog.OwnerTTL).UnixMicro(), o.run)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.hub.own(ctx, o)
	return o, nil
}

func (o *owner) Epoch() uint64 { return o.epoch }

func (o *owner) Requests() <-chan runlog.Request { return o.requests }

func (o *owner) fenced() error { return fmt.Errorf("%s: %w", o.id, runlog.ErrFenced) }

// Renew holds the claim for another while.
func (o *owner) Renew(ctx context.Context) error {
	if o.released.Load() {
		return o.fenced()
	}
	return o.l.s.write(ctx, relaxed, func(c *conn) error {
		n, err := c.exec(context.WithoutCancel(ctx), "UPDATE runs SET until=? WHERE seq=? AND epoch=?",
			o.l.s.now().Add(runlog.OwnerTTL).UnixMicro(), o.run, int64(o.epoch))
		if err == nil && n == 0 {
			err = o.fenced()
		}
		return err
	})
}

// Release gives the run up. Where that can't be written, the claim ends by its time.
func (o *owner) Release(ctx context.Context) error {
	if o.released.Swap(true) {
		return nil
	}
	o.l.hub.disown(o)
	return o.l.s.write(ctx, relaxed, func(c *conn) error {
		_, err := c.exec(context.WithoutCancel(ctx), "UPDATE runs SET until=0 WHERE seq=? AND epoch=?", o.run, int64(o.epoch))
		return err
	})
}

// appends groups the appends of a process: while one commit is under way, those that come meanwhile wait together, and the first
// of them commits for all. Nobody waits when there is nothing to wait for.
type appends struct {
	mu      sync.Mutex
	leading bool
	waiting []*appending
}

// appending is one call of Append.
type appending struct {
	o    *owner
	es   []runlog.Event
	err  error
	turn chan bool // true: commit for all who wait; false: done
}

// Append adds events to the run.
func (o *owner) Append(ctx context.Context, es ...runlog.Event) error {
	es, err := runlog.Prepare(es, o.l.s.now())
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	a := &appending{o: o, es: es, turn: make(chan bool, 1)}
	q := &o.l.appends
	q.mu.Lock()
	q.waiting = append(q.waiting, a)
	if !q.leading {
		q.leading = true
		a.turn <- true
	}
	q.mu.Unlock()
	select {
	case lead := <-a.turn:
		if lead {
			o.l.lead(ctx)
		}
	case <-ctx.Done():
		if q.withdraw(a) {
			return ctx.Err()
		}
		if lead := <-a.turn; lead { // it is being committed, or this call has to commit for others
			o.l.lead(ctx)
		}
	}
	return a.err
}

// withdraw takes a back unless its turn has come.
func (q *appends) withdraw(a *appending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, a); i >= 0 && len(a.turn) == 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return true
	}
	return false
}

// lead commits for all who wait now, the caller among them, and passes the turn on to whoever came meanwhile.
func (l *log) lead(ctx context.Context) {
	q := &l.appends
	q.mu.Lock()
	all := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	l.commit(context.WithoutCancel(ctx), all) // other callers' events hang on it
	q.mu.Lock()
	if len(q.waiting) > 0 {
		q.waiting[0].turn <- true
	} else {
		q.leading = false
	}
	q.mu.Unlock()
	for _, a := range all {
		a.turn <- false // buffered; the leader itself doesn't look
	}
}

// commit writes appends in one transaction and wakes the followers of their runs. Each of a fenced or malformed append fails alone.
func (l *log) commit(ctx context.Context, all []*appending) {
	d := relaxed
	for _, a := range all {
		if slices.ContainsFunc(a.es, func(e runlog.Event) bool { return e.Kind == runlog.RunEnded }) {
			d = durable
		}
	}
	type state struct {
		last uint64
		sum  runlog.Summary
	}
	after := map[*owner]state{}
	err := l.s.write(ctx, d, func(c *conn) error {
		for _, a := range all {
			st, again := after[a.o]
			if !again {
				st = state{a.o.last, a.o.sum}
			}
			changed := false
			if a.err = a.check(ctx, c, again); a.err == nil {
				st.last, changed, a.err = number(a.es, a.o.epoch, st.last, &st.sum)
			}
			if a.err != nil {
				continue
			}
			if err := a.write(ctx, c, changed, st.sum); err != nil {
				return err
			}
			after[a.o] = st
		}
		return nil
	})
	for _, a := range all {
		if err != nil {
			a.err = err
		}
	}
	if err != nil {
		return
	}
	for o, st := range after {
		o.last, o.sum = st.last, st.sum
		l.hub.wake(o.id)
	}
}

// check fails when the claim is over. Within one transaction one look is enough.
func (a *appending) check(ctx context.Context, c *conn, again bool) error {
	if a.o.released.Load() {
		return a.o.fenced()
	}
	if again {
		return nil
	}
	now := standing{of: c, own: a.o.l.claims}
	if err := c.query(ctx, "PRAGMA data_version", func(r []driver.Value) error { now.others = num(r[0]); return nil }); err != nil {
		return err
	}
	if now == a.o.seen {
		return nil
	}
	var epoch uint64
	if err := c.query(ctx, "SELECT epoch FROM runs WHERE seq=?", func(r []driver.Value) error {
		epoch = uint64(num(r[0]))
		return nil
	}, a.o.run); err != nil {
		return err
	}
	if epoch != a.o.epoch {
		return a.o.fenced()
	}
	a.o.seen = now
	return nil
}

// number fills in Seq and Epoch and folds the events into sum, which stays as it was when one of them is malformed.
func number(es []runlog.Event, epoch, last uint64, sum *runlog.Summary) (uint64, bool, error) {
	folded, changed := *sum, false
	for i := range es {
		es[i].Seq, es[i].Epoch = last+uint64(i)+1, epoch
		did, err := folded.Apply(es[i])
		if err != nil {
			return last, false, err
		}
		changed = changed || did
	}
	*sum = folded
	return last + uint64(len(es)), changed, nil
}

func (a *appending) write(ctx context.Context, c *conn, changed bool, sum runlog.Summary) error {
	for _, e := range a.es {
		if _, err := c.exec(ctx, "INSERT INTO events VALUES(?,?,?,?,?,?,?,?)", a.o.run, int64(e.Seq), e.At.UnixMicro(), int64(e.Epoch),
			e.Kind, e.Step, int64(e.Attempt), text(e.Data)); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	if _, err := c.exec(ctx, "UPDATE runs SET status=?, started=?, ended=?, state=? WHERE seq=?", string(sum.Status), micros(sum.Started),
		micros(sum.Ended), runlog.PackState(sum), a.o.run); err != nil {
		return err
	}
	if !sum.Status.Ended() {
		return nil
	}
	_, err := c.exec(ctx, "DELETE FROM requests WHERE run=?", a.o.run)
	return err
}

var (
	_ runlog.Log   = (*log)(nil)
	_ runlog.Owner = (*owner)(nil)
)
