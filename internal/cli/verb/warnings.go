package verb

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/term"
)

// warnings is a slog.Handler that tells people of warnings and errors: "Warning: what: why (key value)".
type warnings struct {
	streams *term.Streams
	attrs   []slog.Attr
}

// Enabled passes warnings and what is worse.
func (h warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle prints one record.
func (h warnings) Handle(_ context.Context, r slog.Record) error {
	text := "Warning: " + r.Message
	var rest []string
	add := func(a slog.Attr) bool {
		value := a.Value.Resolve()
		switch {
		case a.Equal(slog.Attr{}):
		case a.Key == "error":
			text += ": " + value.String()
		default:
			rest = append(rest, fmt.Sprintf("%s %s", a.Key, value))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	h.streams.Problem("%s", term.Clean(text))
	return nil
}

// WithAttrs is a handler that adds attributes to each record.
func (h warnings) WithAttrs(as []slog.Attr) slog.Handler {
	h.attrs = slices.Concat(h.attrs, as)
	return h
}

// WithGroup leaves groups out: people are told values, not where they belong.
func (h warnings) WithGroup(string) slog.Handler { return h }
