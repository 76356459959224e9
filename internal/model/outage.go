package model

import (
	"sync"
	"time"
)

// Outage knows since when nobody reaches an endpoint. All that ask the endpoint share one: who comes after the others have waited long enough does not
// wait as long again. The zero value is an endpoint that is up.
type Outage struct {
	// Wait is how long it is tried again; 0 is DefaultOutage. It is set before use.
	Wait time.Duration

	mu          sync.Mutex
	since, last time.Time // of requests that did not reach it; zero while it is up
	waited      bool      // somebody waited as long as anybody does
}

// DefaultOutage is how long an endpoint that nobody reaches is tried again: names that don't resolve for a minute fail nothing.
const DefaultOutage = 2 * time.Minute

// LongestRedial bounds the wait before such an endpoint is tried again: dialling costs it nothing.
const LongestRedial = 10 * time.Second

// stale is how long after the last failure a new one is another outage.
const stale = 5 * time.Minute

// Met is told of every request that reached the endpoint, whatever it answered.
func (o *Outage) Met() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.last, o.waited = time.Time{}, time.Time{}, false
}

// Missed is told of every request that did not, and answers whether to try again after a pause: not when the outage would be longer than Wait by then, or
// has been for somebody else.
func (o *Outage) Missed(pause time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.last) > stale {
		o.since, o.waited = now, false
	}
	o.last = now
	wait := o.Wait
	if wait <= 0 {
		wait = DefaultOutage
	}
	o.waited = o.waited || now.Sub(o.since)+pause > wait
	return !o.waited
}
