package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"agentenv.internal/agentenv/internal/cli/verb"
)

// signals counts what asks this program to end: Ctrl-C, SIGTERM, SIGHUP. The first cancels the context, the second closes second; Ctrl-\
// counts as both at once.
type signals struct {
	second chan struct{}
	ctx    context.Context //nolint:containedctx // its cause names the signal; it is asked after the command has ended
	end    chan struct{}
	ended  chan struct{}
	ch     chan os.Signal
}

// signalError is the cause of a context that a signal cancelled.
type signalError struct{ sig os.Signal }

func (e signalError) Error() string { return "stopped by " + e.sig.String() }

func (e signalError) Signal() os.Signal { return e.sig }

func (e signalError) code() int {
	if sig, ok := e.sig.(syscall.Signal); ok {
		return verb.Signalled + int(sig)
	}
	return verb.Interrupted
}

// watchSignals watches until stop. first is called before the first signal cancels the context; it must not block.
func watchSignals(parent context.Context, first func()) (*signals, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &signals{second: make(chan struct{}), ctx: ctx, end: make(chan struct{}), ended: make(chan struct{}), ch: make(chan os.Signal, 2)}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	go func() {
		defer close(s.ended)
		for n := 0; ; {
			select {
			case sig := <-s.ch:
				if n++; n == 1 {
					first()
					cancel(signalError{sig})
				}
				if n > 1 || sig == syscall.SIGQUIT {
					close(s.second)
					return
				}
			case <-s.end:
				cancel(nil)
				return
			}
		}
	}()
	return s, ctx
}

func (s *signals) stop() {
	signal.Stop(s.ch)
	close(s.end)
	<-s.ended
}

// error is what a command's error means when a signal came first: the signal's exit code, and no word about the cancelling itself.
func (s *signals) error(err error) error {
	sig, ok := errors.AsType[signalError](context.Cause(s.ctx))
	if !ok {
		return err
	}
	exit, isExit := errors.AsType[*verb.ExitError](err)
	switch {
	case isExit && exit.Final:
		return err
	case errors.Is(err, context.Canceled), message(err) == "":
		return verb.Exit(sig.code())
	}
	return &verb.ExitError{Code: sig.code(), Err: err}
}
