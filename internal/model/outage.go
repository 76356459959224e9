package model

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync"
	"time"
)

// Outage knows since when nobody reaches an endpoint. All that ask the endpoint share one: who comes after the others have waited long enough does not
// wait as long again. The zero value is an endpoint that is up.
type Outage struct {
	// Wait is how long it is tried again; 0 is DefaultOutage. It is set before use.
	Wait time.Duration
	// Tell is told once of each outage, as soon as it is going to be longer than a second: why the endpoint isn't reached and how long it is tried. When it
	// is reached again Tell is called with nil. Set before use; nil: nobody is told.
	Tell func(why error, wait time.Duration)

	mu          sync.Mutex
	told        bool
	since, last time.Time // of requests that did not reach it; zero while it is up
	waited      bool      // somebody waited as long as anybody does
}

// DefaultOutage is how long an endpoint that nobody reaches is tried again: names that don't resolve for a minute fail nothing.
const DefaultOutage = 2 * time.Minute

// LongestRedial bounds the wait before such an endpoint is tried again: dialling costs it nothing.
const LongestRedial = 10 * time.Second

// stale is how long after the last failure a new one is another outage.
const stale = 5 * time.Minute

// How long an endpoint may not be reached before somebody is told: one that refuses, and one that doesn't take or refuse a connection.
const (
	quietMisses = time.Second
	quietDial   = 3 * time.Second
)

// Met is told of every request that reached the endpoint, whatever it answered.
func (o *Outage) Met() {
	o.mu.Lock()
	told := o.told
	o.since, o.last, o.waited, o.told = time.Time{}, time.Time{}, false, false
	o.mu.Unlock()
	if told && o.Tell != nil {
		o.Tell(nil, 0)
	}
}

// Dialling watches a request's way to the endpoint, in the context that the request is to be made with; stop ends that.
func (o *Outage) Dialling(ctx context.Context) (_ context.Context, stop func() bool) {
	if o.Tell == nil {
		return ctx, func() bool { return false }
	}
	t := time.AfterFunc(quietDial, func() { o.tell(errors.New("no connection after " + quietDial.String())) })
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { t.Stop() }}), t.Stop
}

// tell says once that the endpoint isn't reached.
func (o *Outage) tell(why error) {
	o.mu.Lock()
	told := o.told
	o.told = true
	o.mu.Unlock()
	if !told && o.Tell != nil {
		o.Tell(why, o.wait())
	}
}

func (o *Outage) wait() time.Duration {
	if o.Wait <= 0 {
		return DefaultOutage
	}
	return o.Wait
}

// Missed is told of every request that did not, and why, and answers whether to try again after a pause: not when the outage would be longer than Wait by then, or
// has been for somebody else.
func (o *Outage) Missed(pause time.Duration, why error) bool {
	again, long := o.missed(pause)
	if again && long {
		o.tell(why)
	}
	return again
}

func (o *Outage) missed(pause time.Duration) (again, long bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.last) > stale {
		o.since, o.waited, o.told = now, false, false
	}
	o.last = now
	lasts := now.Sub(o.since) + pause
	o.waited = o.waited || lasts > o.wait()
	return !o.waited, lasts >= quietMisses
}
