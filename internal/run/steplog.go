package run

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// stepLog is the slog.Handler that a step's executor writes to: lines of level info and above become events of the step, and all go on to
// the program's own log. No secret is in either.
type stepLog struct {
	*edges
	rec     *recorder
	step    string
	attempt int
	next    slog.Handler
	attrs   []slog.Attr // with their group's prefix
	prefix  string
}

// edges holds lines back that end like the beginning of a secret, until the next line of the same stream shows whether it was one: a stream that is
// logged in pieces may be cut anywhere. It is shared by all loggers of an attempt.
type edges struct {
	mu   sync.Mutex
	held map[string]held // by stream
}

type held struct {
	h *stepLog
	r slog.Record
}

func newStepLog(s *sched, i int) *stepLog {
	id := s.step(i).ID
	return &stepLog{
		edges: &edges{held: map[string]held{}}, rec: s.rec, step: id, attempt: s.nodes[i].attempt, next: s.rec.slog.With("step", id).Handler(),
	}
}

// close writes the lines that are still held.
func (e *edges) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for stream, last := range e.held {
		delete(e.held, stream)
		_ = last.h.write(last.r) // the program's own log is nothing that a run depends on
	}
}

func (h *stepLog) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

func (h *stepLog) Handle(_ context.Context, r slog.Record) error {
	stream := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stream" {
			stream = a.Value.String()
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if last, ok := h.held[stream]; ok {
		delete(h.held, stream)
		last.r.Message, r.Message = h.rec.redact.Across(last.r.Message, r.Message)
		if err := last.h.write(last.r); err != nil {
			return err
		}
	}
	if h.rec.redact.Open(r.Message) > 0 {
		h.held[stream] = held{h, r.Clone()}
		return nil
	}
	return h.write(r)
}

// write puts a line into the record and the program's log.
func (h *stepLog) write(r slog.Record) error {
	r.Message = h.rec.redact.String(r.Message)
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	line := runlog.LogLine{Level: levelName(r.Level)}
	add := func(prefix string, a slog.Attr) {
		if line.Attrs == nil {
			line.Attrs = map[string]any{}
		}
		h.flatten(line.Attrs, prefix, a)
	}
	for _, a := range h.attrs {
		add("", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		add(h.prefix, a)
		if h.rec.redact != nil {
			m := map[string]any{}
			h.flatten(m, "", a)
			for k, v := range m {
				clean.AddAttrs(slog.Any(k, v))
			}
		} else {
			clean.AddAttrs(a)
		}
		return true
	})
	if r.Level >= slog.LevelInfo {
		if line.Message, line.Object = h.rec.long(r.Message); line.Object != nil {
			clean.Message = line.Message // the whole has its place
		}
		e := event(runlog.StepLog, h.step, h.attempt, line)
		if !r.Time.IsZero() {
			e.At = r.Time.UTC().Truncate(time.Microsecond)
		}
		h.rec.later(e)
	}
	if h.next.Enabled(h.rec.ctx, r.Level) {
		return h.next.Handle(h.rec.ctx, clean)
	}
	return nil
}

// long is a message as its event has it: one that is too long begins there, and is kept whole as an object.
func (r *recorder) long(s string) (string, *runlog.Object) {
	if len(s) <= maxInline || r.objects == nil {
		return clip(s), nil
	}
	kept, err := r.objects.Keep(r.ctx, r.run, []byte(cut(s, maxOutput)))
	if err != nil {
		r.slog.Warn("keep a long log line", "error", err)
		return clip(s), nil
	}
	return cut(s, headOf), &kept
}

func (h *stepLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	clean := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		m := map[string]any{}
		h.flatten(m, "", a)
		for k, v := range m {
			clean = append(clean, slog.Any(k, v))
		}
		a.Key = h.prefix + a.Key
		c.attrs = append(c.attrs, a)
	}
	c.next = h.next.WithAttrs(clean)
	return &c
}

func (h *stepLog) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.prefix = h.prefix + name + "."
	c.next = h.next.WithGroup(name)
	return &c
}

// flatten puts an attribute into a record's map as JSON can hold it, without secrets.
func (h *stepLog) flatten(into map[string]any, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	text := func(s string) string { return clip(h.rec.redact.String(s)) }
	key := h.rec.redact.String(prefix + a.Key)
	switch v.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			h.flatten(into, prefix, m)
		}
		return
	case slog.KindString:
		into[key] = text(v.String())
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindBool:
		into[key] = v.Any()
		if f, ok := v.Any().(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) { // JSON has no word for them
			into[key] = v.String()
		}
		if s := v.String(); text(s) != s {
			into[key] = text(s)
		}
	case slog.KindAny:
		switch x := v.Any().(type) {
		case []string:
			list := make([]string, len(x))
			for i, s := range x {
				list[i] = text(s)
			}
			into[key] = list
		case json.RawMessage:
			into[key] = text(string(x))
		default:
			into[key] = text(fmt.Sprint(x))
		}
	default: // times and durations
		into[key] = v.String()
	}
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }
