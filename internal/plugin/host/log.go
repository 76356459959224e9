package host

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Limits of logs.
const (
	maxQueued    = 256      // lines that wait to be written
	maxWaiting   = 16 << 20 // bytes of them
	maxLine      = 64 << 10 // bytes of one
	maxLogLines  = 10_000   // of one call
	maxLogBytes  = 16 << 20
	maxLogFields = 64
)

// lines counts what a call has logged, what was dropped of it, and adds up costs that found no room.
type lines struct {
	written, bytes, dropped atomic.Int64

	mu   sync.Mutex
	owed plugin.Spend
}

// allow tells whether one more line of n bytes is within the call's bounds.
func (l *lines) allow(n int) bool {
	if l.written.Add(1) > maxLogLines || l.bytes.Add(int64(n)) > maxLogBytes {
		l.dropped.Add(1)
		return false
	}
	return true
}

// settle says how many lines were dropped, and books what is owed.
func (c *Caller) settle() {
	if n := c.lines.dropped.Swap(0); n > 0 && c.Log != nil {
		c.Log.Warn("the plugin logged more than can be kept", "dropped_lines", n)
	}
	c.lines.mu.Lock()
	owed := c.lines.owed
	c.lines.owed = plugin.Spend{}
	c.lines.mu.Unlock()
	if owed != (plugin.Spend{}) {
		c.Spend(owed)
	}
}

// logQueue writes log lines in the order in which they came, so that the reader of messages never waits for who writes them.
type logQueue struct {
	log     *slog.Logger // of lines that belong to no call
	items   chan logItem
	waiting atomic.Int64 // bytes of lines in items
	quit    chan struct{}
	done    chan struct{}
}

type logItem struct {
	c     *Caller
	line  plugin.Line
	size  int // of line, as it came
	spend *plugin.Spend
	flush chan<- struct{}
}

func newLogQueue(log *slog.Logger) *logQueue {
	q := &logQueue{log: log, items: make(chan logItem, maxQueued), quit: make(chan struct{}), done: make(chan struct{})}
	go q.work()
	return q
}

func (q *logQueue) work() {
	defer close(q.done)
	for {
		select {
		case i := <-q.items:
			q.take(i)
			continue
		case <-q.quit:
		}
		for { // what is left
			select {
			case i := <-q.items:
				q.take(i)
			default:
				return
			}
		}
	}
}

func (q *logQueue) take(i logItem) {
	switch {
	case i.flush != nil:
		close(i.flush)
	case i.spend != nil:
		i.c.Spend(*i.spend)
	default:
		q.write(i.c, i.line)
		q.waiting.Add(-int64(i.size))
	}
}

// put makes a line that came as size bytes, its fields included, wait to be written, or drops it.
func (q *logQueue) put(c *Caller, line plugin.Line, size int) {
	if c != nil && !c.lines.allow(size) {
		return
	}
	if q.waiting.Add(int64(size)) <= maxWaiting {
		select {
		case q.items <- logItem{c: c, line: line, size: size}:
			return
		default:
		}
	}
	q.waiting.Add(-int64(size))
	if c != nil {
		c.lines.dropped.Add(1)
	}
}

// spend books a cost after the lines that came before it; where there is no room, at the call's end: a cost is never dropped.
func (q *logQueue) spend(c *Caller, s plugin.Spend) {
	if c == nil || c.Spend == nil {
		return
	}
	select {
	case q.items <- logItem{c: c, spend: &s}:
	default:
		c.lines.mu.Lock()
		c.lines.owed.USD += s.USD
		c.lines.owed.InputTokens += s.InputTokens
		c.lines.owed.OutputTokens += s.OutputTokens
		c.lines.mu.Unlock()
	}
}

// flush waits until everything that came before it is written.
func (q *logQueue) flush() {
	c := make(chan struct{})
	select {
	case q.items <- logItem{flush: c}:
	case <-q.done:
		return
	}
	select {
	case <-c:
	case <-q.done:
	}
}

// close writes what is left and ends.
func (q *logQueue) close() {
	close(q.quit)
	<-q.done
}

func (q *logQueue) write(c *Caller, line plugin.Line) {
	log := q.log
	if c != nil && c.Log != nil {
		log = c.Log
	}
	names := slices.Sorted(maps.Keys(line.Fields))
	var attrs []any
	for _, name := range names[:min(len(names), maxLogFields)] {
		v := line.Fields[name]
		if s, ok := v.(string); ok {
			v = cut(s)
		}
		attrs = append(attrs, slog.Any(diag.Clean(name), v))
	}
	say := log.Info
	switch line.Level {
	case "debug":
		say = log.Debug
	case "warning":
		say = log.Warn
	case "error":
		say = log.Error
	}
	say(cut(line.Message), attrs...)
}

// cut is at most maxLine bytes of a text.
func cut(s string) string {
	if len(s) > maxLine {
		s = strings.ToValidUTF8(s[:maxLine], "") + " …"
	}
	return s
}
