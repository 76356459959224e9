package mem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
)

// log is a runlog.Log in memory. All owners live in this process, so a claim ends by its time or its release alone.
type log struct {
	now func() time.Time

	mu   sync.Mutex
	seq  int64
	runs map[string]*run
}

type run struct {
	seq      int64
	sum      runlog.Summary // Status as the events fold
	events   []runlog.Event
	epoch    uint64
	until    time.Time // zero: nobody owns it
	owner    *owner
	asked    uint64
	requests []runlog.Request // not yet delivered
	changed  chan struct{}    // closed, and replaced, at every append
}

func newLog(now func() time.Time) *log { return &log{now: now, runs: map[string]*run{}} }

func (l *log) find(id string) (*run, error) {
	r := l.runs[id]
	if r == nil {
		return nil, runlog.NotFound(id)
	}
	return r, nil
}

func (l *log) Create(ctx context.Context, m runlog.Meta) error {
	m, err := runlog.PrepareMeta(m, l.now())
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	m.Labels = maps.Clone(m.Labels)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[m.ID] != nil {
		return fmt.Errorf("%s: %w", m.ID, runlog.ErrExists)
	}
	l.seq++
	l.runs[m.ID] = &run{seq: l.seq, sum: runlog.Summary{Meta: m, Status: runlog.Queued}, changed: make(chan struct{})}
	return nil
}

// summary is what people see of a run. The lock is held.
func (l *log) summary(r *run) runlog.Summary {
	s := r.sum
	s.Labels, s.Scores = maps.Clone(s.Labels), maps.Clone(s.Scores)
	live := r.until.After(l.now())
	s.Status = s.Status.Seen(live || r.epoch == 0)
	if live {
		s.Owner = l.info(r)
	}
	return s
}

func (l *log) info(r *run) *runlog.OwnerInfo {
	host, _ := os.Hostname()
	return &runlog.OwnerInfo{Host: host, PID: os.Getpid(), Epoch: r.epoch, Until: r.until.UTC().Truncate(time.Microsecond)}
}

func (l *log) Get(ctx context.Context, id string) (runlog.Summary, error) {
	if err := ctx.Err(); err != nil {
		return runlog.Summary{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(id)
	if err != nil {
		return runlog.Summary{}, err
	}
	return l.summary(r), nil
}

// newestFirst is all runs in the order of lists. The lock is held.
func (l *log) newestFirst() []*run {
	return slices.SortedFunc(maps.Values(l.runs), func(a, b *run) int {
		return cmp.Or(b.sum.Created.Compare(a.sum.Created), cmp.Compare(b.seq, a.seq))
	})
}

func (l *log) List(ctx context.Context, q runlog.Query) (runlog.Page, error) {
	if err := ctx.Err(); err != nil {
		return runlog.Page{}, err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = runlog.DefaultLimit
	}
	var after runlog.Cursor
	if q.After != "" {
		var err error
		if after, err = runlog.ParseCursor(q.After); err != nil {
			return runlog.Page{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var p runlog.Page
	for _, r := range l.newestFirst() {
		at := runlog.Cursor{Created: r.sum.Created.UnixMicro(), Seq: r.seq}
		if q.After != "" && cmp.Or(cmp.Compare(at.Created, after.Created), cmp.Compare(at.Seq, after.Seq)) >= 0 {
			continue
		}
		s := l.summary(r)
		if !q.Wants(s) {
			continue
		}
		if len(p.Runs) == limit {
			last := p.Runs[limit-1]
			p.Next = runlog.Cursor{Created: last.Created.UnixMicro(), Seq: l.runs[last.ID].seq}.String()
			break
		}
		p.Runs = append(p.Runs, s)
	}
	return p, nil
}

func (l *log) Resolve(ctx context.Context, text string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var matches []string
	for _, r := range l.newestFirst() {
		if runlog.Match(r.sum.ID, text) {
			matches = append(matches, r.sum.ID)
		}
	}
	return runlog.Pick(text, matches)
}

func (l *log) Ask(ctx context.Context, id string, q runlog.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(id)
	if err != nil {
		return err
	}
	if r.sum.Status.Ended() {
		return fmt.Errorf("%s: %w", id, runlog.ErrEnded)
	}
	r.asked++
	q.Seq, q.Data = r.asked, slices.Clone(q.Data)
	r.requests = append(r.requests, q)
	r.deliver()
	return nil
}

// deliver hands over as many requests as the owner's channel takes. The lock is held.
func (r *run) deliver() {
	for r.owner != nil && len(r.requests) > 0 {
		select {
		case r.owner.requests <- r.requests[0]:
			r.requests = r.requests[1:]
		default:
			return
		}
	}
}

// since answers the events after seq, whether no more will come, and what tells of new ones.
func (l *log) since(id string, seq uint64) ([]runlog.Event, bool, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(id)
	if err != nil {
		return nil, false, nil, err
	}
	var es []runlog.Event
	if seq < uint64(len(r.events)) {
		es = slices.Clone(r.events[seq:])
		for i := range es {
			es[i].Data = slices.Clone(es[i].Data)
		}
	}
	return es, r.sum.Status.Ended(), r.changed, nil
}

func (l *log) Events(ctx context.Context, id string, after uint64) iter.Seq2[runlog.Event, error] {
	return l.walk(ctx, id, after, false)
}

func (l *log) Follow(ctx context.Context, id string, after uint64) iter.Seq2[runlog.Event, error] {
	return l.walk(ctx, id, after, true)
}

func (l *log) walk(ctx context.Context, id string, after uint64, wait bool) iter.Seq2[runlog.Event, error] {
	return func(yield func(runlog.Event, error) bool) {
		for {
			if err := ctx.Err(); err != nil {
				yield(runlog.Event{}, err)
				return
			}
			es, ended, changed, err := l.since(id, after)
			if err != nil {
				yield(runlog.Event{}, err)
				return
			}
			for _, e := range es {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if ended || !wait {
				return
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	}
}

// named adds the objects that events name.
func (l *log) named(used map[ref.Digest]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.runs {
		for _, e := range r.events {
			for d := range e.Digests() {
				used[d] = true
			}
		}
	}
}

// owner is one claim of a run.
type owner struct {
	l        *log
	r        *run
	epoch    uint64
	requests chan runlog.Request
	released bool
}

func (l *log) Claim(ctx context.Context, id string) (runlog.Owner, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(id)
	if err != nil {
		return nil, err
	}
	if r.until.After(l.now()) {
		return nil, runlog.Owned(id, *l.info(r))
	}
	if r.owner != nil { // what it has not taken is for the next one
		r.requests = append(r.owner.untaken(), r.requests...)
	}
	r.epoch++
	r.until = l.now().Add(runlog.OwnerTTL)
	r.owner = &owner{l: l, r: r, epoch: r.epoch, requests: make(chan runlog.Request, runlog.RequestBuffer)}
	r.deliver()
	return r.owner, nil
}

// untaken takes back what was handed over and not received. The lock is held.
func (o *owner) untaken() (out []runlog.Request) {
	for {
		select {
		case q, ok := <-o.requests:
			if !ok {
				return out
			}
			out = append(out, q)
		default:
			return out
		}
	}
}

func (o *owner) Epoch() uint64 { return o.epoch }

func (o *owner) Requests() <-chan runlog.Request { return o.requests }

// held fails when the claim is over. The lock is held.
func (o *owner) held() error {
	if o.released || o.r.owner != o {
		return fmt.Errorf("%s: %w", o.r.sum.ID, runlog.ErrFenced)
	}
	return nil
}

func (o *owner) Append(ctx context.Context, es ...runlog.Event) error {
	es, err := runlog.Prepare(es, o.l.now())
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	o.l.mu.Lock()
	defer o.l.mu.Unlock()
	if err := o.held(); err != nil {
		return err
	}
	if len(es) == 0 {
		return nil
	}
	sum := o.r.sum
	for i := range es {
		es[i].Seq, es[i].Epoch = uint64(len(o.r.events)+i+1), o.epoch
		if _, err := sum.Apply(es[i]); err != nil {
			return err
		}
	}
	o.r.sum = sum
	o.r.events = append(o.r.events, es...)
	if sum.Status.Ended() {
		o.r.requests = nil
	}
	o.r.deliver()
	close(o.r.changed)
	o.r.changed = make(chan struct{})
	return nil
}

func (o *owner) Renew(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.l.mu.Lock()
	defer o.l.mu.Unlock()
	if err := o.held(); err != nil {
		return err
	}
	o.r.until = o.l.now().Add(runlog.OwnerTTL)
	o.r.deliver()
	return nil
}

func (o *owner) Release(context.Context) error {
	o.l.mu.Lock()
	defer o.l.mu.Unlock()
	if o.released {
		return nil
	}
	o.released = true
	close(o.requests)
	if o.r.owner == o {
		o.r.owner, o.r.until = nil, time.Time{}
	}
	return nil
}

var (
	_ runlog.Log   = (*log)(nil)
	_ runlog.Owner = (*owner)(nil)
)
