package host_test

import (
	"context"
	"log/slog"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// call is a step that scores, of a run that has left little.
func call() *step.Call {
	var h step.History
	return &step.Call{
		Run: "r", Step: "s", Attempt: 1, Trial: 1, Doc: doc.Build(map[string]any{"id": "s", "type": "acme", "do": "nothing", "n": 1}),
		State: h.View(func(int) bool { return true }), Out: &step.Diff{}, Log: slog.New(slog.DiscardHandler),
	}
}

type inProcess struct{}

func (inProcess) Run(_ context.Context, c *step.Call) error {
	return c.Out.Set("metadata/verifications/s", map[string]any{"score": 1})
}

// BenchmarkStep is one step: in this process, and in a Go plugin that is up.
func BenchmarkStep(b *testing.B) {
	b.Run("in process", func(b *testing.B) {
		for b.Loop() {
			if err := (inProcess{}).Run(b.Context(), call()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("go plugin", func(b *testing.B) {
		r := start(b, "", nil)
		if err := r.step.Run(b.Context(), call()); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := r.step.Run(b.Context(), call()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStart is a Go plugin from nothing to the end of its first step, and its end.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		r := start(b, "", nil)
		if err := r.step.Run(b.Context(), call()); err != nil {
			b.Fatal(err)
		}
		if err := r.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
