package run

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// stepLog is the slog.Handler that a step's executor writes to: lines of level info and above become events of the step, and all go on to
// the program's own log.
type stepLog struct {
	rec     *recorder
	step    string
	attempt int
	next    slog.Handler
	attrs   []slog.Attr // with their group's prefix
	prefix  string
}

func (h *stepLog) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

func (h *stepLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		line := runlog.LogLine{Level: levelName(r.Level), Message: clip(r.Message)}
		add := func(prefix string, a slog.Attr) {
			if line.Attrs == nil {
				line.Attrs = map[string]any{}
			}
			flatten(line.Attrs, prefix, a)
		}
		for _, a := range h.attrs {
			add("", a)
		}
		r.Attrs(func(a slog.Attr) bool { add(h.prefix, a); return true })
		e := event(runlog.StepLog, h.step, h.attempt, line)
		if !r.Time.IsZero() {
			e.At = r.Time.UTC().Truncate(time.Microsecond)
		}
		h.rec.later(e)
	}
	if h.next.Enabled(ctx, r.Level) {
		return h.next.Handle(ctx, r)
	}
	return nil
}

func (h *stepLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.prefix + a.Key
		c.attrs = append(c.attrs, a)
	}
	c.next = h.next.WithAttrs(attrs)
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

// flatten puts an attribute into a record's map as JSON can hold it.
func flatten(into map[string]any, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range v.Group() {
			flatten(into, prefix, m)
		}
		return
	case slog.KindString:
		into[prefix+a.Key] = clip(v.String())
	case slog.KindInt64, slog.KindUint64, slog.KindBool:
		into[prefix+a.Key] = v.Any()
	case slog.KindFloat64:
		into[prefix+a.Key] = v.Any()
		if f := v.Float64(); math.IsNaN(f) || math.IsInf(f, 0) { // JSON has no word for them
			into[prefix+a.Key] = v.String()
		}
	case slog.KindDuration:
		into[prefix+a.Key] = v.Duration().String()
	case slog.KindAny:
		if list, ok := v.Any().([]string); ok {
			into[prefix+a.Key] = list
			return
		}
		into[prefix+a.Key] = clip(fmt.Sprint(v.Any()))
	default:
		into[prefix+a.Key] = v.String()
	}
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }
