package run

import (
	"context"
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
)

// Context is the context document that a run's steps have left so far: what each of them committed last, in the order in which they ended.
func Context(ctx context.Context, l runlog.Log, o Objects, id string) (json.RawMessage, error) {
	var h step.History
	steps := map[string]int{}
	number := func(step string) int {
		n, ok := steps[step]
		if !ok {
			n = len(steps)
			steps[step] = n
		}
		return n
	}
	for e, err := range l.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		switch e.Kind {
		case runlog.StepsReset:
			var r runlog.Reset
			if err := json.Unmarshal(e.Data, &r); err != nil {
				return nil, fmt.Errorf("%s: its data can't be read: %w", e.Kind, err)
			}
			for _, s := range r.Steps {
				h.Drop(number(s))
			}
		case runlog.StepEnded:
			ops, err := Outputs(ctx, o, e)
			if err != nil {
				return nil, fmt.Errorf("step %s: %w", e.Step, err)
			}
			h.Drop(number(e.Step))
			h.Commit(number(e.Step), ops)
		}
	}
	return h.View(func(int) bool { return true }).Document()
}
