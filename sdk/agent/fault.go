package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"agentenv.internal/agentenv/sdk/wire"
)

// panicked is a panic as an error: its text is for the log alone.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

// guarded runs f and makes an error of its panic.
func guarded[T any](f func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return f()
}

// crash logs what must not be told and answers the text that may, with the number to find it by.
func (a *Agent) crash(ctx context.Context, what string, err error) string {
	id := newID(16)
	attrs := []slog.Attr{slog.String("what", what), slog.String("correlation_id", id), slog.String("error", err.Error())}
	if p, ok := errors.AsType[*panicked](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	a.log.LogAttrs(ctx, slog.LevelError, "an agent's code failed", attrs...)
	return "An unexpected framework error occurred. Correlation ID: " + id
}

// attempt runs the agent's function for a task.
func (a *Agent) attempt(t *task) (Result, error) {
	return guarded(func() (Result, error) { return a.run(t.ctx, a.turn(t.ctx, t)) })
}

// outcome is how a task ends by what its turn returned. The error says that res is not to be used.
func (a *Agent) outcome(t *task, res *Result, err error) (state string, parts []wire.Part, fault error) {
	if err == nil {
		if parts, err = res.parts(); err == nil {
			return wire.TaskCompleted, parts, nil
		}
	}
	f, declared := errors.AsType[*Failure](err)
	if declared {
		if parts, err = f.parts(); err == nil {
			if parts, err = res.withUsage(parts); err == nil {
				return wire.TaskFailed, parts, nil
			}
		}
	}
	if t.ctx.Err() != nil { // it was interrupted: whatever it says then is no crash
		return wire.TaskCanceled, nil, err
	}
	f = &Failure{Code: codeCrash, Message: a.crash(t.ctx, "turn", err), Infra: true}
	parts, _ = f.parts() // texts always encode
	return wire.TaskFailed, parts, err
}
