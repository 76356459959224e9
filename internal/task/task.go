// Package task holds task and eval documents: their steps, their order and their rules. It is pure.
package task

import (
	"time"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

// Task is a graph of steps. Steps are in authored order; edges only point backwards.
type Task struct {
	ID      string
	Version int
	Steps   []Step
	Config  doc.Node // the canonical array as authored, references as ids
}

// Step is one node of the graph.
type Step struct {
	ID, Type  string
	Kind      *step.Kind
	Deps      []int // indices of the steps it waits for; null in the document means all before it
	Tolerated bool  // fail_task_on_error is false
	Retry     *Retry
	Timeout   time.Duration // the generic timeout_seconds; 0 for none, or where the kind owns that field
	Always    bool          // runs after a fatal failure too
	Doc       doc.Node      // as authored, references as ids
}

// Retry is a step's retry_config.
type Retry struct {
	From    int // index of the step to go back to: itself or an ancestor
	Max     int
	Backoff time.Duration
}

// Eval is a list of tasks.
type Eval struct {
	ID      string
	Version int
	Tasks   []string // ids
}
