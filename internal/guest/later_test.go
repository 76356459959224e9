package guest

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Later
		begin := time.Now()
		var fired [5]time.Duration
		call := func(i int, d time.Duration) *Call {
			return l.After(d, func() { fired[i] = time.Since(begin) })
		}
		call(0, 30*time.Millisecond)
		call(1, 10*time.Millisecond) // sooner than what is set
		stopped := call(2, 20*time.Millisecond)
		call(3, 30*time.Millisecond)
		if !stopped.Stop() || stopped.Stop() {
			t.Error("a call that waits is taken back once")
		}
		time.Sleep(40 * time.Millisecond)
		late := call(4, time.Minute) // after the timer has run out
		time.Sleep(2 * time.Minute)
		if late.Stop() {
			t.Error("a call that was made is taken back")
		}
		late.Settle()
		const ms = time.Millisecond
		if want := [5]time.Duration{30 * ms, 10 * ms, 0, 30 * ms, time.Minute + 40*ms}; fired != want {
			t.Errorf("called after %v, want %v", fired, want)
		}
		if len(l.waiting) != 0 || !l.at.IsZero() {
			t.Errorf("%d are left, the timer is set for %v", len(l.waiting), l.at)
		}
	})
}

// Settle waits for a call under way.
func TestLaterSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Later
		var over atomic.Bool
		c := l.After(time.Millisecond, func() { time.Sleep(time.Second); over.Store(true) })
		time.Sleep(10 * time.Millisecond)
		if c.Settle(); !over.Load() {
			t.Error("it didn't wait")
		}
	})
}
