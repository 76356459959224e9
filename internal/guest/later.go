package guest

import (
	"sync"
	"time"
)

// Later calls functions when their time has come, as time.AfterFunc does, for many that are mostly taken back before: they share one timer, which is
// left as it is when one is taken back, and when a later one comes. A timer that is set wakes a thread of the program. The zero value is ready.
type Later struct {
	mu      sync.Mutex
	timer   *time.Timer
	at      time.Time // when it fires; zero: it isn't set
	waiting map[*Call]time.Time
}

// Call is one function of a Later.
type Call struct {
	of    *Later
	f     func()
	ended chan struct{}
}

// After has f called in a goroutine of its own once d has passed.
func (l *Later) After(d time.Duration, f func()) *Call {
	c := &Call{l, f, make(chan struct{})}
	due := time.Now().Add(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[*Call]time.Time{}
	}
	l.waiting[c] = due
	l.set(due)
	return c
}

// set makes the timer fire at due or before. The lock is held.
func (l *Later) set(due time.Time) {
	if !l.at.IsZero() && !due.Before(l.at) {
		return
	}
	l.at = due
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(due), l.fire)
		return
	}
	l.timer.Reset(time.Until(due))
}

// fire calls what is due, and sets the timer for the next one.
func (l *Later) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for c, due := range l.waiting {
		if !due.After(now) {
			delete(l.waiting, c)
			go c.call()
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	l.at = time.Time{}
	if !next.IsZero() {
		l.set(next)
	}
}

func (c *Call) call() {
	defer close(c.ended)
	c.f()
}

// Stop takes the call back, and tells whether it was in time.
func (c *Call) Stop() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	_, waits := c.of.waiting[c]
	delete(c.of.waiting, c)
	return waits
}

// Settle takes the call back, or waits until the function has returned.
func (c *Call) Settle() {
	if !c.Stop() {
		<-c.ended
	}
}
