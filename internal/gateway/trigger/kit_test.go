package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/gateway/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a host whose tools note their calls.
type world struct {
	mu      sync.Mutex
	calls   []string
	records []string
	access  []string
	results map[string]string // tool -> text of its result
	broken  map[string]bool   // tools whose result is an error
	hold    chan struct{}     // calls wait for it, unless nil
	errands []Errand
	reply   error
}

func (w *world) Call(ctx context.Context, tool string, args json.RawMessage, role string) (json.RawMessage, error) {
	w.mu.Lock()
	hold := w.hold
	w.calls = append(w.calls, strings.TrimSpace(tool+" "+string(args)+" "+role))
	text, bad := w.results[tool], w.broken[tool]
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return result(text, bad), nil
}

func result(text string, bad bool) []byte {
	b, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": bad})
	return b
}

func (w *world) Tool(name string) (known, readOnly, all bool) {
	return name != "nobody", strings.HasPrefix(name, "read_"), true
}
func (w *world) Websites() []string { return []string{"shop"} }
func (w *world) SetAccess(role string, tools []string, allow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.access = append(w.access, fmt.Sprint(role, tools, allow))
}

func (w *world) Record(kind string, members []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, kind+" {"+string(members)+"}")
}
func (w *world) LastChange(context.Context) string { return "null" }
func (w *world) Changed()                          {}
func (w *world) Send(_ context.Context, e Errand) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errands = append(w.errands, e)
	return "done", w.reply
}

func (w *world) called() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) sent() []Errand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.errands)
}

func newEngine(t *testing.T, w *world) (*Engine, *clock.Clock) {
	t.Helper()
	c := clock.New(nil)
	e := New(t.Context(), w, w, c, slog.New(slog.DiscardHandler))
	t.Cleanup(e.Close)
	return e, c
}

func register(t *testing.T, e *Engine, body string) {
	t.Helper()
	if _, err := e.Register([]byte(body)); err != nil {
		t.Fatal(err)
	}
}

func kinds(e *Engine) string {
	var out []string
	events, _ := e.State()["events"].([]json.RawMessage)
	for _, ev := range events {
		var v struct {
			Kind string
			ID   string `json:"trigger_id"`
		}
		if json.Unmarshal(ev, &v) == nil {
			out = append(out, v.ID+":"+v.Kind)
		}
	}
	return strings.Join(out, " ")
}

func status(t *testing.T, e *Engine, id string) string {
	t.Helper()
	list, _ := e.State()["triggers"].([]fields)
	for _, f := range list {
		if f["id"] == id {
			s, _ := f["status"].(string)
			return s
		}
	}
	t.Fatalf("there is no trigger %q", id)
	return ""
}

func set(t *testing.T, c *clock.Clock, e *Engine, at string, rate float64) {
	t.Helper()
	v, err := clock.ParseTime(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(v, rate); err != nil {
		t.Fatal(err)
	}
	e.Kick()
}

// waitFor holds until ok, for tests of what happens beside them.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s didn't come", what)
}

var errNo = errors.New("no")
