package trigger

import (
	"context"
	"maps"
	"math"
	"time"

	"agentenv.internal/agentenv/internal/gateway/clock"
	"agentenv.internal/agentenv/internal/rawjson"
)

const (
	// tick is how long the driver sleeps at most while a time trigger is armed: the clock may be far ahead by then.
	tick = time.Second
	// recheck is how long a wait for virtual time sleeps at most.
	recheck = 5 * time.Second
	// maxCatchUp bounds the marks that one look at the time takes; the others are taken by later looks.
	maxCatchUp = 1000
)

// drive looks at the time whenever a time trigger may be due. It sleeps while there is none.
func (e *Engine) drive() {
	for {
		var timer <-chan time.Time
		stop := func() bool { return false }
		if d, ok := e.due(); ok {
			t := time.NewTimer(d)
			timer, stop = t.C, t.Stop
		}
		select {
		case <-e.ctx.Done():
			stop()
			return
		case <-e.kick:
		case <-timer:
		}
		stop()
		e.mu.Lock()
		e.lookAtTime()
		e.mu.Unlock()
	}
}

// due is when the next time trigger may fire, in real time; false while none can.
func (e *Engine) due() (time.Duration, bool) {
	virtual, ok := e.clock.Now()
	if !ok {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	best, any := tick, false
	for _, t := range e.order {
		if t.when.kind != onTime || t.status != armed || t.when.after != "" && !t.resolved {
			continue
		}
		any = true
		if t.next.IsZero() {
			continue
		}
		if d, runs := e.clock.Real(t.next.Sub(virtual).Seconds()); runs {
			best = min(best, max(d+time.Millisecond, time.Millisecond))
		}
	}
	return best, any
}

// lookAtTime fires the time triggers that are due; e.mu is held.
func (e *Engine) lookAtTime() {
	virtual, ok := e.clock.Now()
	if !ok {
		return
	}
	generation := e.clock.Generation()
	for _, t := range e.order {
		if t.when.kind != onTime || t.status != armed {
			continue
		}
		if t.when.after == "" && t.resolved && t.generation != generation {
			// Its mark lies on a time line that the clock has left.
			e.emit("reanchored", t.id, fields{"generation": generation, "dropped_mark": t.nextMark()})
			t.resolved, t.next = false, time.Time{}
			t.seed()
		}
		if !t.resolved && t.when.after == "" {
			t.first(e.clock.State().T0)
			t.generation = generation
		}
		if t.next.IsZero() || virtual.Before(t.next) {
			continue
		}
		marks, capped, over := t.advance(virtual, e.clock.State().T0)
		switch {
		case len(marks) > 0:
			e.fireMarks(t, marks, capped, over)
		case over:
			t.status, t.next = fired, time.Time{}
			e.changed()
		}
	}
}

// first is the first mark of a trigger that isn't anchored on another.
func (t *trig) first(t0 time.Time) {
	if t.when.at != nil {
		t.next = t.when.at.resolve(t0)
	} else {
		t.next = clock.Advance(t0, t.interval())
	}
	t.resolved = true
}

func (t *trig) interval() float64 {
	if p := t.when.every; p.drawn {
		return t.rng.exponential(p.seconds)
	}
	return t.when.every.seconds
}

// anchor gives triggers that wait for this one their mark; e.mu is held.
func (e *Engine) anchor(id string) {
	virtual, ok := e.clock.Now()
	if !ok {
		return
	}
	for _, t := range e.order {
		if t.when.kind != onTime || t.when.after != id || t.resolved || t.status != armed {
			continue
		}
		t.next, t.resolved = clock.Advance(virtual, t.when.offset), true
		e.emit("anchored", t.id, fields{"anchor": id, "mark": t.nextMark()})
	}
	e.Kick()
}

// advance takes the marks that are due. over: there will be no others.
func (t *trig) advance(virtual, t0 time.Time) (marks []time.Time, capped, over bool) {
	for !t.next.IsZero() && !virtual.Before(t.next) {
		if t.when.until != nil && t.next.After(t.when.until.resolve(t0)) {
			t.next = time.Time{}
			return marks, false, true
		}
		marks = append(marks, t.next)
		if t.when.every == nil || t.when.count > 0 && t.fireCount+len(marks) >= t.when.count {
			t.next = time.Time{}
			return marks, false, true
		}
		next := clock.Advance(t.next, t.interval())
		if !next.After(t.next) { // the calendar's end
			t.next = time.Time{}
			return marks, false, true
		}
		if t.next = next; len(marks) >= maxCatchUp {
			return marks, true, false
		}
	}
	return marks, false, false
}

func (e *Engine) fireMarks(t *trig, marks []time.Time, capped, over bool) {
	t.status, t.detectedAt = firing, now()
	e.emit("detected", t.id, fields{
		"provoking": fields{"source": "clock"}, "due": len(marks), "capped": capped,
		"first_mark": clock.Format(marks[0]), "last_mark": clock.Format(marks[len(marks)-1]),
	})
	// A mark's delay runs from the mark; it is reckoned before any wait, so that a backlog isn't pushed back.
	virtual, ok := e.clock.Now()
	elapsed := e.clock.Elapsed()
	since := make([]float64, len(marks))
	for i, m := range marks {
		if since[i] = elapsed; ok {
			since[i] -= max(0, virtual.Sub(m).Seconds())
		}
	}
	e.fireAsync(t, func(ctx context.Context) { e.fireTime(ctx, t, marks, since, capped, over) })
}

// fireTime runs the actions once for each mark. A failure retires the trigger.
func (e *Engine) fireTime(ctx context.Context, t *trig, marks []time.Time, since []float64, capped, over bool) {
	e.host.Record("trigger_fired", rawjson.AppendString([]byte(`"source":"trigger_engine","trigger_id":`), t.id))
	for k, m := range marks {
		e.mu.Lock()
		t.tries++
		e.mu.Unlock()
		for i := range t.actions {
			if !e.act(ctx, t, i, provocation{since: since[k]}) {
				e.mu.Lock()
				t.status, t.next = failed, time.Time{}
				if !t.removed {
					e.emit("failed", t.id, fields{"action_index": i})
				}
				e.changed()
				e.mu.Unlock()
				return
			}
		}
		e.mu.Lock()
		t.fireCount++
		t.firedAt = now()
		if !t.removed {
			e.emit("fired", t.id, fields{"fire_count": t.fireCount, "mark": clock.Format(m), "capped": capped})
		}
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.status = armed; over {
		t.status = fired
	}
	if !t.removed {
		e.anchor(t.id)
	}
	e.changed()
}

// wait waits out an action's delay, counted from when its cause was; false when it was ended.
func (e *Engine) wait(ctx context.Context, t *trig, i int, since float64) bool {
	a := &t.actions[i]
	e.mu.Lock()
	seconds := a.delay.seconds
	if rng := t.delays[i]; rng != nil {
		seconds = rng.exponential(a.delay.seconds)
	}
	if !t.removed {
		f := fields{"action_index": i, "virtual_seconds": math.Round(seconds*1000) / 1000}
		maps.Copy(f, a.named())
		e.emit("delayed", t.id, f)
	}
	t.waiting = true
	e.mu.Unlock()
	err := e.sleepVirtual(ctx, since+seconds-e.clock.Elapsed(), nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	t.waiting = false
	return err == nil
}

// waitHours waits until an executor works; false when it was ended. While the clock is unarmed everybody works.
func (e *Engine) waitHours(ctx context.Context, t *trig, i int, h *hours) bool {
	setWaiting := func(v bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		t.waiting = v
	}
	setWaiting(true)
	defer setWaiting(false)
	var opens time.Time
	var closed bool
	for first, generation := true, uint64(0); ; {
		current := e.clock.Generation()
		virtual, ok := e.clock.Now()
		if !ok {
			return true
		}
		if first || current != generation {
			first, generation = false, current
			if opens, closed = h.opening(virtual); closed {
				f := fields{"action_index": i, "until": clock.Format(opens)}
				maps.Copy(f, t.actions[i].named())
				e.note(t, "deferred", f)
			}
		}
		if !closed || !virtual.Before(opens) {
			return true
		}
		if e.sleepVirtual(ctx, opens.Sub(virtual).Seconds(), &generation) != nil {
			return false
		}
	}
}

// sleepVirtual waits until so many virtual seconds have passed; with a generation, also until the clock has another.
func (e *Engine) sleepVirtual(ctx context.Context, seconds float64, generation *uint64) error {
	until := e.clock.Elapsed() + seconds
	for {
		left := until - e.clock.Elapsed()
		if left <= 0 || generation != nil && e.clock.Generation() != *generation {
			return nil
		}
		d := recheck
		if r, runs := e.clock.Real(left); runs {
			d = min(d, r+time.Millisecond)
		}
		timer := time.NewTimer(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errWaitEnded
		case <-timer.C:
		}
	}
}
