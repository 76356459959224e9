package trigger

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"agentenv.internal/agentenv/internal/gateway/clock"
)

const (
	headEvents = 1000 // that are kept from the beginning
	tailEvents = 9000 // and from the end
	maxDetail  = 300
)

// eventLog keeps the first and the last events.
type eventLog struct {
	head, tail []json.RawMessage
	oldest     int // of tail, once it is full
	seq        int
}

func (l *eventLog) add(ev json.RawMessage) {
	switch {
	case len(l.head) < headEvents:
		l.head = append(l.head, ev)
	case len(l.tail) < tailEvents:
		l.tail = append(l.tail, ev)
	default:
		l.tail[l.oldest] = ev
		l.oldest = (l.oldest + 1) % tailEvents
	}
}

func (l *eventLog) all() []json.RawMessage {
	out := append([]json.RawMessage{}, l.head...)
	out = append(out, l.tail[l.oldest:]...)
	return append(out, l.tail[:l.oldest]...)
}

// fields are the members of an event beside those that each has.
type fields = map[string]any

// emit notes an event; e.mu is held.
func (e *Engine) emit(kind, id string, f fields) {
	e.events.seq++
	ts := now()
	ev := fields{"seq": e.events.seq, "ts": ts, "kind": kind, "trigger_id": id}
	maps.Copy(ev, f)
	if t, ok := e.clock.Now(); ok {
		ev["virtual_time"] = clock.Format(t)
	}
	b, err := json.Marshal(ev)
	if err != nil {
		e.log.Error("an event of a trigger can't be kept", "kind", kind, "error", err)
		return
	}
	e.events.add(b)
	e.log.Debug("trigger", "event", string(b))
	if t := e.find(id); t != nil && (kind == "failed" || kind == "eval_error") {
		t.failures++
		t.lastFailure = ts
	}
}

// note is emit for those that don't hold e.mu, and whose trigger may have been removed.
func (e *Engine) note(t *trig, kind string, f fields) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.removed {
		e.emit(kind, t.id, f)
	}
}

func short(s string) string {
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "")
	}
	return s
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func trimSlash(s string) string { return strings.TrimRight(s, "/") }

// summary are the members of a condition that State tells.
var summary = []string{"type", "tool", "app", "method", "path", "status", "roles", "repeat", "at", "after", "offset", "every", "count", "until", "seed"}

// State tells how all triggers stand and what they did.
func (e *Engine) State() map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	named := []string{}
	for name := range e.executors {
		if name != "" {
			named = append(named, name)
		}
	}
	_, unnamed := e.executors[""]
	list := []fields{}
	for _, t := range e.order {
		list = append(list, t.state())
	}
	events := e.events.all()
	watch := append([]string{}, e.watch...)
	return map[string]any{
		"config":         fields{"watch_roles": watch, "executor_configured": unnamed, "executors": sorted(named)},
		"triggers":       list,
		"events":         events,
		"events_dropped": e.events.seq - len(events),
	}
}

func (t *trig) state() fields {
	w := fields{}
	for _, k := range summary {
		if v, ok := t.when.doc[k]; ok {
			w[k] = v
		}
	}
	return fields{
		"id": t.id, "type": t.when.kind, "when": w, "status": t.status, "detected_at": orNull(t.detectedAt), "fired_at": orNull(t.firedAt),
		"fire_count": t.fireCount, "failure_count": t.failures, "last_failure_at": orNull(t.lastFailure), "barrier": t.doc["barrier"],
		"pending": len(t.pending), "waiting": t.waiting, "next_mark": t.nextMark(),
	}
}

func (t *trig) nextMark() any {
	if t.next.IsZero() {
		return nil
	}
	return clock.Format(t.next)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
