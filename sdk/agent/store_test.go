package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

// TestStoredBytes: what tasks hold on to is counted and given back, and beyond a bound idle contexts are forgotten though there are few.
func TestStoredBytes(t *testing.T) {
	a := New("a", func(_ context.Context, t *Turn) (Result, error) {
		for i := range 2 * maxUpdates {
			if err := t.Progress(fmt.Sprint("note ", i), nil); err != nil {
				return Result{}, err
			}
		}
		return Text("bye"), t.Record(map[string]int{"a": 1})
	})
	s := a.tasks
	ask := func(text string) *task {
		t.Helper()
		k, rerr := s.submit(t.Context(), wire.Message{MessageID: "m", Role: wire.RoleUser, Parts: []wire.Part{wire.TextPart(text)}})
		if rerr != nil {
			t.Fatal(rerr)
		}
		if v := s.await(t.Context(), k, 0); len(v.History) != 1+maxUpdates || len(k.updates) != maxUpdates || v.Status.State != wire.TaskCompleted {
			t.Fatalf("%d messages, %d updates, %s", len(v.History), len(k.updates), v.Status.State)
		}
		s.work.Wait()
		return k
	}
	first := ask("hello")
	if want := len("hello") + len("bye") + len(`{"a":1}`) + maxUpdates*len("note 2047"); first.stored != want || s.stored != want {
		t.Errorf("%d and %d bytes, want %d", first.stored, s.stored, want)
	}
	s.mu.Lock()
	s.keep(first, maxStored)
	s.mu.Unlock()
	second := ask(strings.Repeat("x", 10))
	if _, rerr := s.get(first.id, 0); rerr == nil || s.stored != second.stored {
		t.Errorf("%v, %d bytes", rerr, s.stored)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
