package pyhost_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// What starting the Python host costs, up to the first step's answer: imports of the plugin included.
func BenchmarkStartToFirstAnswer(b *testing.B) {
	python := generation(b, "faults")
	var total time.Duration
	for b.Loop() {
		h := start(b, python, nil)
		if _, err := h.execute(fault, how("ok"), nil); err != nil {
			b.Fatal(err)
		}
		h.stop()
		total += h.cmd.ProcessState.UserTime() + h.cmd.ProcessState.SystemTime()
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "cpu-ms/op")
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
			cpu(b, h)
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
	cpu(b, h)
}

// cpu reports what the process of a benchmark took for each call, its start included.
func cpu(b *testing.B, h *bridge) {
	b.StopTimer()
	h.stop()
	s := h.cmd.ProcessState
	b.ReportMetric(float64((s.UserTime()+s.SystemTime()).Microseconds())/float64(b.N), "cpu-µs/op")
}
