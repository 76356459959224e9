package computer

import (
	"context"
	"maps"
	"sync"
	"time"
)

// queue gives the desktop to one input at a time, first come first served, and counts what was delivered, by caller.
type queue struct {
	mu        sync.Mutex
	busy      bool
	waiting   []chan struct{} // closed when its turn comes
	delivered map[string]int
}

// turn waits for the desktop. release ends the turn.
func (q *queue) turn(ctx context.Context, wait time.Duration) (release func(), err error) {
	q.mu.Lock()
	if !q.busy {
		q.busy = true
		q.mu.Unlock()
		return q.next, nil
	}
	mine := make(chan struct{})
	q.waiting = append(q.waiting, mine)
	q.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-mine:
		return q.next, nil
	case <-t.C:
		err = Fail(InputBusy, "other input kept the computer busy for %g s", wait.Seconds())
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	for i, w := range q.waiting {
		if w == mine {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.mu.Unlock()
			return nil, err
		}
	}
	q.mu.Unlock()
	q.next() // the turn came in between: pass it on
	return nil, err
}

func (q *queue) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
}

// deliver counts an input of a caller.
func (q *queue) deliver(caller string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delivered == nil {
		q.delivered = map[string]int{}
	}
	q.delivered[caller]++
}

// snapshot is what was delivered so far.
func (q *queue) snapshot() map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.delivered)
}

// othersSince is how many inputs of others than caller were delivered since a snapshot.
func (q *queue) othersSince(then map[string]int, caller string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for who, count := range q.delivered {
		if who != caller {
			n += count - then[who]
		}
	}
	return n
}
