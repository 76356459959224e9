package trigger

import (
	"encoding/json"
	"fmt"
	"time"
)

// saved is an engine in a file. Events aren't kept, only how many there were.
type saved struct {
	Watch      []string            `json:"watch_roles,omitempty"`
	Configured bool                `json:"configured"`
	Executors  map[string]executor `json:"executors,omitempty"`
	Triggers   []savedTrigger      `json:"triggers"`
	Events     int                 `json:"events"`
}

type savedTrigger struct {
	Doc         map[string]any `json:"doc"`
	Status      string         `json:"status"`
	DetectedAt  string         `json:"detected_at,omitempty"`
	FiredAt     string         `json:"fired_at,omitempty"`
	FireCount   int            `json:"fire_count"`
	Failures    int            `json:"failure_count"`
	Tries       int            `json:"tries"`
	LastFailure string         `json:"last_failure_at,omitempty"`
	Next        time.Time      `json:"next,omitzero"`
	Resolved    bool           `json:"resolved"`
	Draws       int            `json:"draws,omitempty"`
	Delays      map[int]int    `json:"delay_draws,omitempty"`
}

// Save is the engine for a file.
func (e *Engine) Save() (json.RawMessage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := saved{Watch: e.watch, Configured: e.configured, Executors: e.executors, Events: e.events.seq}
	for _, t := range e.order {
		s := savedTrigger{
			Doc: t.doc, Status: t.status, DetectedAt: t.detectedAt, FiredAt: t.firedAt, FireCount: t.fireCount, Failures: t.failures,
			Tries: t.tries, LastFailure: t.lastFailure, Next: t.next, Resolved: t.resolved, Delays: map[int]int{},
		}
		if t.rng != nil {
			s.Draws = t.rng.draws
		}
		for i, r := range t.delays {
			s.Delays[i] = r.draws
		}
		out.Triggers = append(out.Triggers, s)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write the triggers: %w", err)
	}
	return b, nil
}

// Restore goes on with an engine from a file; before Start. A trigger that was firing counts as failed there: whether its actions ran isn't known.
func (e *Engine) Restore(b json.RawMessage) error {
	v, err := decode(b)
	if err != nil {
		return fmt.Errorf("read the triggers: %w", err)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read the triggers: %w", err)
	}
	docs, _ := path{{key: "triggers"}}.get(v).([]any)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watch, e.configured, e.events.seq = s.Watch, s.Configured, s.Events
	if s.Executors != nil {
		e.executors = s.Executors
	}
	r := reader{e.executors, e.host.Websites()}
	for i, st := range s.Triggers {
		doc, _ := path{{key: "doc"}}.get(docs[i]).(map[string]any) // with numbers as they were written
		sp, err := r.trigger(doc)
		if err != nil {
			return fmt.Errorf("read the triggers: %w", err)
		}
		e.order = append(e.order, restored(sp, st, e.clock.Generation()))
	}
	for i, st := range s.Triggers {
		if t := e.order[i]; st.Status == firing || st.Status == queued {
			if t.status = armed; t.when.kind == onTime {
				t.status, t.next = failed, time.Time{}
			}
			e.emit("failed", t.id, fields{"detail": "the gateway ended while it was firing"})
		}
	}
	return nil
}

func restored(sp *spec, st savedTrigger, generation uint64) *trig {
	t := newTrig(sp)
	t.status, t.detectedAt, t.firedAt, t.fireCount, t.failures = st.Status, st.DetectedAt, st.FiredAt, st.FireCount, st.Failures
	t.tries, t.lastFailure, t.next, t.resolved, t.generation = st.Tries, st.LastFailure, st.Next, st.Resolved, generation
	if t.rng != nil {
		t.rng.skip(st.Draws)
	}
	for i, r := range t.delays {
		r.skip(st.Delays[i])
	}
	return t
}
