package pyhost_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// What starting the Python host costs, up to the first step's answer: imports of the plugin included.
func BenchmarkStartToFirstAnswer(b *testing.B) {
	python := generation(b, "faults")
	for b.Loop() {
		h := start(b, python, nil)
		if _, err := h.execute(fault, how("ok"), nil); err != nil {
			b.Fatal(err)
		}
		h.stop()
	}
}

// What a step costs in a process that runs, with contexts of two sizes and one caller.
func BenchmarkExecute(b *testing.B) {
	python := generation(b, "faults")
	for _, n := range []int{0, 1000} {
		context := map[string]any{}
		for i := range n {
			context[fmt.Sprintf("k%d", i)] = map[string]any{"score": i, "text": "some words"}
		}
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			h := start(b, python, nil)
			for b.Loop() {
				if _, err := h.execute(fault, how("ok"), map[string]any{"metadata": context}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A question to the host out of a step.
func BenchmarkHostCall(b *testing.B) {
	h := start(b, generation(b, "faults"), map[string]func(json.RawMessage) (any, error){
		"host/secret.get": func(json.RawMessage) (any, error) { return map[string]string{"value": "v"}, nil },
	})
	for b.Loop() {
		if _, err := h.execute(fault, how("secret"), nil); err != nil {
			b.Fatal(err)
		}
	}
}
