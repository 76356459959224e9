package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// errTimeout is the cause of a context that ended with the step's own limit.
var errTimeout = errors.New("the step's time is up")

// exec calls a step's executor with the document that it sees, under the step's limit. A panic is a defect of ours, not the task's.
func (r *Runner) exec(ctx context.Context, st *task.Step, c *step.Call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("an executor panicked", "step", st.ID, "type", st.Type, "panic", r.Redact.String(fmt.Sprint(p)), "stack", r.Redact.String(string(debug.Stack())))
			err = step.Infra(step.Errorf("InternalError", "a defect in agent-env stopped this %s step; -v shows where, please report it", st.Type))
		}
	}()
	e, ok := r.Executors.Get(st.Type)
	if !ok {
		return step.Errorf("UnsupportedError", "%s", missing(st.Type))
	}
	if c.Doc, err = r.revealed(ctx, st.Kind.Fill(st.Doc)); err != nil {
		return err
	}
	if st.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, st.Timeout, errTimeout)
		defer cancel()
	}
	err = e.Value.Run(ctx, c)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		state := ""
		if h, ok := errors.AsType[*step.Halted](err); ok {
			state = "; " + h.State
		}
		return step.Errorf("TimeoutError", "timed out after %gs%s", st.Timeout.Seconds(), state)
	}
	return err
}

// missing says that nothing executes a step type.
func missing(typ string) string {
	return fmt.Sprintf("%s steps are checked but can't be run by this version of agent-env", typ)
}
