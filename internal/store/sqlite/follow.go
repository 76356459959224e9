package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"iter"
	"maps"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// page is how many events are read at once.
const page = 512

// Events yields what is there now.
func (l *log) Events(ctx context.Context, run string, after uint64) iter.Seq2[runlog.Event, error] {
	return func(yield func(runlog.Event, error) bool) {
		for {
			es, _, err := l.since(ctx, run, after)
			if !give(yield, es, err) || len(es) < page {
				return
			}
			after = es[len(es)-1].Seq
		}
	}
}

// Follow yields events as they come, from this process at once and from others within the polling time.
func (l *log) Follow(ctx context.Context, run string, after uint64) iter.Seq2[runlog.Event, error] {
	return func(yield func(runlog.Event, error) bool) {
		news, stop := l.hub.follow(ctx, run)
		defer stop()
		for {
			es, ended, err := l.since(ctx, run, after)
			if !give(yield, es, err) {
				return
			}
			if len(es) > 0 {
				after = es[len(es)-1].Seq
			}
			if len(es) == page {
				continue
			}
			if ended {
				return
			}
			select {
			case <-ctx.Done():
				yield(runlog.Event{}, ctx.Err())
				return
			case <-l.hub.done:
				yield(runlog.Event{}, errClosed)
				return
			case <-news:
			}
		}
	}
}

// give yields events, then the error if there is one, and tells whether to go on.
func give(yield func(runlog.Event, error) bool, es []runlog.Event, err error) bool {
	for _, e := range es {
		if !yield(e, nil) {
			return false
		}
	}
	if err != nil {
		yield(runlog.Event{}, err)
	}
	return err == nil
}

// since reads up to a page of events and whether the run had ended by then.
func (l *log) since(ctx context.Context, id string, after uint64) (es []runlog.Event, ended bool, err error) {
	var run int64
	err = l.s.read(ctx, func(c *conn) error {
		if err := c.query(ctx, "SELECT seq, status FROM runs WHERE id=?", func(r []driver.Value) error {
			run, ended = num(r[0]), runlog.Status(str(r[1])).Ended()
			return nil
		}, id); err != nil {
			return err
		}
		return c.query(ctx, "SELECT seq, at, epoch, kind, step, attempt, data FROM events WHERE run=? AND seq>? ORDER BY seq LIMIT ?", func(r []driver.Value) error {
			e := runlog.Event{Seq: uint64(num(r[0])), At: fromMicros(num(r[1])), Epoch: uint64(num(r[2])), Kind: str(r[3]), Step: str(r[4]), Attempt: int(num(r[5]))}
			if s := str(r[6]); s != "" {
				e.Data = json.RawMessage(s)
			}
			es = append(es, e)
			return nil
		}, run, int64(after), int64(page))
	})
	if err == nil && run == 0 {
		err = runlog.NotFound(id)
	}
	return es, ended, err
}

// hub wakes followers and hands requests to owners. While there is one of either, a goroutine polls what other processes wrote;
// it ends with the last of them, and close waits for it.
type hub struct {
	l    *log
	poll time.Duration
	done chan struct{} // closed by close
	ask  chan struct{} // a request of this process was left

	mu        sync.Mutex
	closed    bool
	followers map[chan struct{}]string // the run that each follows
	owners    map[int64]*owner
	stop      context.CancelFunc // of the poller; nil when none runs
	last      chan struct{}      // closed when the newest poller has ended
	pollers   sync.WaitGroup
}

func newHub(l *log, poll time.Duration) *hub {
	return &hub{
		l: l, poll: poll, done: make(chan struct{}), ask: make(chan struct{}, 1),
		followers: map[chan struct{}]string{}, owners: map[int64]*owner{},
	}
}

func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.done)
	}
	if h.stop != nil {
		h.stop()
	}
	h.mu.Unlock()
	h.pollers.Wait()
}

// follow answers a channel that tells of new events of a run, and what ends it.
func (h *hub) follow(ctx context.Context, run string) (<-chan struct{}, func()) {
	news := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers[news] = run
	h.start(ctx)
	return news, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.followers, news)
		h.settle()
	}
}

func (h *hub) own(ctx context.Context, o *owner) {
	h.mu.Lock()
	h.owners[o.run] = o
	h.start(ctx)
	h.mu.Unlock()
	h.poke() // requests that came before
}

func (h *hub) disown(o *owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[o.run] == o {
		delete(h.owners, o.run)
	}
	close(o.requests)
	h.settle()
}

// start runs the poller. The lock is held.
func (h *hub) start(ctx context.Context) {
	if h.stop != nil || h.closed {
		return
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx)) // it outlives the caller that happened to come first
	before, this := h.last, make(chan struct{})
	h.last = this
	h.pollers.Go(func() {
		defer close(this)
		if before != nil { // one at a time
			<-before
		}
		h.run(ctx)
	})
}

// settle ends the poller when nobody needs it. The lock is held.
func (h *hub) settle() {
	if len(h.followers) == 0 && len(h.owners) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// wake tells the followers of a run, or of all when run is "", that there is something new.
func (h *hub) wake(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for news, follows := range h.followers {
		if run != "" && run != follows {
			continue
		}
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// poke has the poller look for requests now.
func (h *hub) poke() {
	select {
	case h.ask <- struct{}{}:
	default:
	}
}

// run polls. SQLite's data_version changes, on one connection, with every commit of another.
func (h *hub) run(ctx context.Context) {
	tick := time.NewTicker(h.poll)
	defer tick.Stop()
	var c *conn
	var version int64
	undelivered := false
	defer func() {
		if c != nil {
			h.l.s.release(c)
		}
	}()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-h.ask:
			asked = true
		case <-tick.C:
		}
		if c == nil {
			var err error
			if c, err = h.l.s.reader(ctx); err != nil || c == nil {
				continue
			}
			version = -1
		}
		var now int64
		err := c.query(ctx, "PRAGMA data_version", func(r []driver.Value) error { now = num(r[0]); return nil })
		if err == nil && (now != version || asked || undelivered) {
			if now != version {
				h.wake("")
			}
			version = now
			undelivered, err = h.deliver(ctx, c)
		}
		if err != nil {
			_ = c.close()
			c = nil
		}
	}
}

// deliver hands requests to the owners in this process. They are removed before they are handed over: a request is acted on once or,
// should the process die in between, not at all. It tells whether some had to wait for a full channel.
func (h *hub) deliver(ctx context.Context, c *conn) (undelivered bool, err error) {
	pending, undelivered, err := h.pending(ctx, c)
	if err != nil || len(pending) == 0 {
		return undelivered, err
	}
	if err := h.l.s.write(ctx, relaxed, func(w *conn) error {
		for i := range pending {
			p := &pending[i]
			n, err := w.exec(context.WithoutCancel(ctx), "DELETE FROM requests WHERE run=? AND seq=?", p.o.run, int64(p.Seq))
			if err != nil {
				return err
			}
			p.gone = n == 0 // the run has ended meanwhile
		}
		return nil
	}); err != nil {
		return true, nil // as when another process writes for long: again at the next tick
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range pending {
		if h.owners[p.o.run] == p.o && !p.gone {
			p.o.requests <- p.Request // there was room, and nobody else sends
		}
	}
	return undelivered, nil
}

// addressed is a request with the owner that it goes to.
type addressed struct {
	runlog.Request
	o    *owner
	gone bool
}

// pending reads what the channels of the owners in this process have room for.
func (h *hub) pending(ctx context.Context, c *conn) (out []addressed, more bool, err error) {
	h.mu.Lock()
	room := make(map[int64]int, len(h.owners))
	owners := maps.Clone(h.owners)
	for run, o := range owners {
		room[run] = cap(o.requests) - len(o.requests)
	}
	h.mu.Unlock()
	if len(owners) == 0 {
		return nil, false, nil
	}
	const query = "SELECT q.run, q.seq, q.kind, q.step, q.data, r.epoch FROM requests q JOIN runs r ON r.seq=q.run ORDER BY q.run, q.seq"
	err = c.query(ctx, query, func(r []driver.Value) error {
		run := num(r[0])
		o := owners[run]
		if o == nil || int64(o.epoch) != num(r[5]) { // of a claim that another has replaced
			return nil
		}
		if room[run] == 0 {
			more = true
			return nil
		}
		room[run]--
		q := runlog.Request{Seq: uint64(num(r[1])), Kind: str(r[2]), Step: str(r[3])}
		if s := str(r[4]); s != "" {
			q.Data = json.RawMessage(s)
		}
		out = append(out, addressed{Request: q, o: o})
		return nil
	})
	return out, more, err
}
