package model

import (
	"context"
	"sync"
	"time"
)

// maxAtOnce is how many requests a Client ever has open.
const maxAtOnce = 1024

// limiter bounds the requests at once: it grows by one a round while all goes well, and halves when the endpoint asks for less. What an
// endpoint asks to wait holds for all.
type limiter struct {
	mu      sync.Mutex
	limit   float64
	open    int
	until   time.Time // nobody starts before
	changed chan struct{}
}

func newLimiter() *limiter { return &limiter{limit: 64, changed: make(chan struct{})} }

func (l *limiter) acquire(ctx context.Context) error {
	for {
		l.mu.Lock()
		pause := time.Until(l.until)
		if pause <= 0 && float64(l.open) < l.limit {
			l.open++
			l.mu.Unlock()
			return nil
		}
		changed := l.changed
		l.mu.Unlock()
		var due <-chan time.Time
		var t *time.Timer
		if pause > 0 {
			t = time.NewTimer(pause)
			due = t.C
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		}
		if t != nil {
			t.Stop()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// release gives the place back; e is how the request failed, nil when it did not.
func (l *limiter) release(e *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	switch {
	case e == nil:
		l.limit = min(maxAtOnce, l.limit+1/l.limit)
	case e.Kind == RateLimited || e.Kind == Overloaded:
		l.limit = max(1, l.limit/2)
		if until := time.Now().Add(min(e.RetryAfter, time.Minute)); until.After(l.until) {
			l.until = until
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}
