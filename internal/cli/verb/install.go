package verb

import (
	"context"
	"errors"
	"os"
	"strings"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/term"
)

// RerunVariable is set in the environment of a command that is run again after an install: it asks nothing.
const RerunVariable = "AGENT_ENV_RERUN"

// Again ends a command that is to be run anew in a new process, since what it needs has been installed.
type Again struct{}

func (*Again) Error() string { return "run it again" }

// Killed ends a command that a signal stopped while it asked: it dies by that signal, as if it had never been caught.
type Killed struct{ Signal os.Signal }

func (k *Killed) Error() string { return "stopped by " + k.Signal.String() }

// BySignal is the cause of a context that a signal ended.
type BySignal interface {
	error
	Signal() os.Signal
}

// Offer asks whether to install what a bundle requires, where that is all that is wrong with it and somebody can answer. It answers err itself where there is
// nothing to ask or the answer is no, Again once the installation stands, and else how that failed.
func (p *Program) Offer(ctx context.Context, err error, dryRun bool) error {
	unmet, ok := errors.AsType[*bundlerun.UnmetRequirements](err)
	if !ok || !unmet.Only || len(unmet.Install) == 0 || dryRun || p.Install == nil || !p.Streams.CanAsk() {
		return err
	}
	if v, _ := p.Env(RerunVariable); v != "" {
		return err
	}
	yes, asked := p.Streams.Confirm(ctx, "Install "+strings.Join(unmet.Install, ", ")+" with agent-env plugin add?", "")
	if errors.Is(asked, term.ErrAborted) {
		if by, ok := errors.AsType[BySignal](context.Cause(ctx)); ok && by.Signal() != os.Interrupt {
			return &Killed{by.Signal()}
		}
		p.Streams.Problem("Aborted!")
		return Final(Refused)
	}
	if asked != nil {
		return asked
	}
	if !yes {
		return err
	}
	if err := p.Install(ctx, unmet.Install); err != nil {
		return err
	}
	return &Again{}
}
