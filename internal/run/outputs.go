package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
)

// Objects keeps pieces of a run's record that are too long for its events, for as long as the run is on record.
type Objects interface {
	Keep(ctx context.Context, run string, b []byte) (runlog.Object, error)
	Read(ctx context.Context, o runlog.Object) ([]byte, error)
}

const (
	// maxInline is how much of a step's output, or of one log line, an event holds.
	maxInline = 64 << 10
	// maxOutput is how much of a log line is kept at all.
	maxOutput = 16 << 20
	// headOf is how much of a long log line its event shows.
	headOf = 4 << 10
)

// saveOps is a step's diff as its end records it: while it is longer than maxInline, its longest values become objects.
func saveOps(ctx context.Context, o Objects, run string, ops []step.Op) (json.RawMessage, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	size := 0
	order := make([]int, len(ops))
	for i := range ops {
		size += len(ops[i].Value)
		order[i] = i
	}
	if o != nil && size > maxInline {
		ops = slices.Clone(ops)
		slices.SortStableFunc(order, func(a, b int) int { return len(ops[b].Value) - len(ops[a].Value) })
		for _, i := range order {
			if size <= maxInline {
				break
			}
			kept, err := o.Keep(ctx, run, ops[i].Value)
			if err != nil {
				return nil, fmt.Errorf("keep the step's output at %s: %w", ops[i].Path, err)
			}
			size -= len(ops[i].Value)
			ops[i].Value = nil
			ops[i].Object, _ = json.Marshal(kept) // of a string and a number: it can't fail
		}
	}
	return json.Marshal(ops)
}

// loadOps reads what saveOps made.
func loadOps(ctx context.Context, o Objects, diff json.RawMessage) ([]step.Op, error) {
	if len(diff) == 0 {
		return nil, nil
	}
	var ops []step.Op
	if err := json.Unmarshal(diff, &ops); err != nil {
		return nil, err
	}
	for i := range ops {
		if len(ops[i].Object) == 0 {
			continue
		}
		var kept runlog.Object
		if err := json.Unmarshal(ops[i].Object, &kept); err != nil {
			return nil, err
		}
		if o == nil {
			return nil, errors.New("a long output of a step is kept in a store that is not here")
		}
		b, err := o.Read(ctx, kept)
		if err != nil {
			return nil, fmt.Errorf("the step's output at %s: %w", ops[i].Path, err)
		}
		ops[i].Value, ops[i].Object = b, nil
	}
	return ops, nil
}

// Outputs are the changes of the context document that the end of a step committed, as its event has them: none for other events.
func Outputs(ctx context.Context, o Objects, e runlog.Event) ([]step.Op, error) {
	if e.Kind != runlog.StepEnded {
		return nil, nil
	}
	var end runlog.StepEnd
	if err := json.Unmarshal(e.Data, &end); err != nil {
		return nil, err
	}
	return loadOps(ctx, o, end.Diff)
}
