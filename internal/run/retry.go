package run

import (
	"log/slog"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/task"
)

// retry is a part of the graph that the run goes back to: everything that depends on one step.
type retry struct {
	cause  int // the step that failed
	from   int
	after  task.Set  // what depends on from
	at     time.Time // when it may start
	undone bool      // nothing of it runs any more, and what it had standing is gone
}

// has tells whether a step is of the part.
func (rt *retry) has(i int) bool { return i == rt.from || rt.after.Has(i) }

// maxBackoff bounds the wait before a retry, which doubles each time.
const maxBackoff = 5 * time.Minute

// retry goes back because step i failed, when its budget allows. Steps of the part that run are told to stop, and what they answer is dropped;
// steps outside the part go on.
func (s *sched) retry(i int) bool {
	n, rule := &s.nodes[i], s.step(i).Retry
	if rule == nil || n.retries >= rule.Max || n.failure.Lasting || s.stopped || s.fatal {
		return false
	}
	backoff := min(min(rule.Backoff, maxBackoff)<<min(n.retries, 16), maxBackoff) // bounded first: no shift overflows
	n.retries++
	n.state = waiting
	rt := &retry{cause: i, from: rule.From, after: s.q.Task.Dependents(rule.From), at: time.Now().Add(backoff)}
	for j := range s.nodes {
		m := &s.nodes[j]
		if !rt.has(j) || m.state != running || j == i {
			continue
		}
		m.redo = true
		m.cancel(errRedo)
	}
	s.retries = append(s.retries, rt)
	s.rec.log(slog.LevelInfo, "retry", "step", s.step(i).ID, "from", s.step(rule.From).ID, "retry", n.retries, "of", rule.Max,
		"error", n.failure.Error)
	return true
}

// held tells whether a step belongs to a part that is not yet to start.
func (s *sched) held(i int) bool {
	for _, rt := range s.retries {
		if rt.has(i) {
			return true
		}
	}
	return false
}

// resume resets the parts in which nothing runs any more, and lets those start whose time has come. A fatal failure ends all retries:
// their steps are settled by dispatch like all that never start.
func (s *sched) resume() {
	kept := s.retries[:0]
	for _, rt := range s.retries {
		if !rt.undone && !s.busy(rt) {
			s.reset(rt)
		}
		if rt.undone && (s.fatal || s.stopped || !time.Now().Before(rt.at)) {
			for j := range s.nodes {
				if rt.has(j) && s.nodes[j].waits == 0 {
					s.ready = append(s.ready, j)
				}
			}
			continue
		}
		kept = append(kept, rt)
	}
	clear(s.retries[len(kept):])
	s.retries = kept
}

func (s *sched) busy(rt *retry) bool {
	for j := range s.nodes {
		if rt.has(j) && s.nodes[j].state == running {
			return true
		}
	}
	return false
}

// reset forgets what a part's steps did: their diffs, their failures, what they had standing.
func (s *sched) reset(rt *retry) {
	var indices []int
	var ids []string
	for j := range s.nodes {
		if rt.has(j) {
			indices = append(indices, j)
			if s.nodes[j].attempt > 0 {
				ids = append(ids, s.step(j).ID)
			}
			s.nodes[j].state = waiting
			s.forget(s.nodes[j].failure)
			s.nodes[j].failure = nil
		}
	}
	for _, j := range indices {
		s.nodes[j].waits = 0
	}
	for d := range s.nodes {
		if s.nodes[d].state.settled() {
			continue
		}
		for _, j := range s.nodes[d].next {
			if rt.has(j) {
				s.nodes[j].waits++
			}
		}
	}
	s.hist.Drop(indices...)
	rt.undone = true
	// On record first: an owner who lost the run must not touch what may stand for another by now.
	if s.rec.commit(event(runlog.StepsReset, s.step(rt.cause).ID, 0, runlog.Reset{
		Steps: ids, Reason: runlog.ResetRetry, Step: s.step(rt.cause).ID, From: s.step(rt.from).ID,
	})) != nil {
		return
	}
	if err := s.r.World.Undo(s.ctx, s.q.Run, ids...); err != nil {
		s.rec.log(slog.LevelWarn, "undoing what steps had standing before they run again: "+err.Error())
	}
}

// forget takes a failure that a retry made good off the books.
func (s *sched) forget(f *Failure) {
	for i, have := range s.failures {
		if have == f {
			s.failures = append(s.failures[:i], s.failures[i+1:]...)
			return
		}
	}
}

// wake fires when the next part may start; it is nil while none waits for its time.
func (s *sched) wake() <-chan time.Time {
	var first time.Time
	for _, rt := range s.retries {
		if rt.undone && (first.IsZero() || rt.at.Before(first)) {
			first = rt.at
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}
