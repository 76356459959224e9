package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// operation calls an operation of the agent's, whose answer is of no use.
func (r *a2aRunner) operation(ctx context.Context, uri, name string, in map[string]any, secret bool) error {
	most := r.agent.all.o.Waits.Operation
	limited, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("%w: %s of %s was not answered within %s", a2a.ErrUnreachable, name, uri, most))
	defer cancel()
	err := r.client.Operation(limited, &r.card, uri, name, in, nil, secret)
	if limited.Err() != nil && ctx.Err() == nil && r.box != nil {
		return err
	}
	return r.fault(ctx, err)
}

// fault is an error of an agent's extension, told apart: one that nobody reaches elsewhere, and a sandbox that is gone, are the machinery's.
func (r *a2aRunner) fault(ctx context.Context, err error) error {
	if !errors.Is(err, a2a.ErrUnreachable) || ctx.Err() != nil {
		return err
	}
	if err := r.boxGone(ctx); err != nil {
		return err
	}
	if r.box == nil {
		return step.Infra(&step.Error{Type: "AgentUnreachable", Err: err})
	}
	if r.died(ctx, err) {
		return r.server.trouble(errors.New("it ended"))
	}
	return err
}

// boxGone is the machinery's error when the agent's sandbox doesn't stand any more.
func (r *a2aRunner) boxGone(ctx context.Context) error {
	if r.box == nil {
		return nil
	}
	if _, err := r.box.Stat(ctx, "/"); errors.Is(err, guest.ErrGone) {
		return step.Infra(&step.Error{Type: "SandboxError", Err: fmt.Errorf("the sandbox of agent %s: %w", diag.Repr(r.agent.Name), err)})
	}
	return nil
}

// alive tells why an agent's program can't answer any more.
func (r *a2aRunner) alive(context.Context) error {
	if r.server == nil {
		return nil
	}
	select {
	case <-r.server.dead():
		return errors.New("its program has ended")
	default:
		return nil
	}
}

// died tells whether the agent's program has ended, or is about to: its connections break before anybody is told.
func (r *a2aRunner) died(ctx context.Context, err error) bool {
	if r.server == nil {
		return false
	}
	if !errors.Is(err, a2a.ErrUnreachable) {
		return r.alive(ctx) != nil
	}
	t := time.NewTimer(r.agent.all.o.Waits.End)
	defer t.Stop()
	select {
	case <-r.server.dead():
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// lost is the outcome of a prompt whose agent could not be asked to the end. In a sandbox of ours nothing but the sandbox stands between it and us, so
// that an agent which died, or doesn't answer, has failed; one elsewhere that nobody reaches is not to blame.
func (r *a2aRunner) lost(ctx context.Context, out Reply, err error) (Reply, error) {
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if step.IsInfra(err) || errors.Is(err, guest.ErrGone) {
		return out, err
	}
	if gone := r.boxGone(ctx); gone != nil {
		return out, gone
	}
	unreachable := errors.Is(err, a2a.ErrUnreachable)
	switch {
	case r.died(ctx, err):
		out.ErrorCode, out.ErrorMessage = "died", r.server.trouble(errors.New("it ended")).Error()
	case unreachable && r.box == nil:
		return out, step.Infra(&step.Error{Type: "AgentUnreachable", Err: err})
	case unreachable:
		out.ErrorCode, out.ErrorMessage = "unreachable", r.server.trouble(err).Error()
	default:
		out.ErrorCode, out.ErrorMessage = "protocol", err.Error()
	}
	out.ErrorType = wire.AgentError
	return out, nil
}
