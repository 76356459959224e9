package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"agentenv.internal/agentenv/sdk/wire"
)

var errEnding = errors.New("the app's server is ending")

// take waits for a turn, which leave gives back. Who waits longest comes next; a caller that is gone, or a server that ends, waits no more.
func (s *Server) take(ctx context.Context) error {
	if s.ending() {
		return errEnding
	}
	select {
	case s.turns <- struct{}{}:
		if s.ending() {
			<-s.turns
			return errEnding
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over:
		return errEnding
	}
}

func (s *Server) ending() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s *Server) leave() { <-s.turns }

// outcome is whether a call's work ended before its time did: the one that is first says what the caller is told.
type outcome struct {
	mu    sync.Mutex
	ended bool
	late  error
	err   error
}

// end is the work's end; what it answers counts.
func (o *outcome) end(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.late != nil {
		err = o.late
	}
	o.ended, o.err = true, err
	return err
}

// expire is the end of the time. With false, the work has ended well, and what follows is waited for.
func (o *outcome) expire(late error) (error, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return o.err, o.err != nil
	}
	o.late = late
	return late, true
}

// call runs a method of the data plane in a turn of its own. The caller is answered when all is done, or when the time is over; the turn lasts until the
// work, and the reset and launch that follow it, have ended.
func (s *Server) call(ctx context.Context, method string, work func(context.Context) error) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.app.Timeout)
	var o outcome
	done := make(chan error, 1)
	s.work.Go(func() {
		defer s.leave()
		defer cancel()
		done <- s.contract(limited, method, func(ctx context.Context) error {
			err := guarded(ctx, s.log, method, func() error { return work(ctx) })
			if err != nil && limited.Err() != nil { // it fails because it was told to end
				err = s.late(method)
			}
			return o.end(err)
		})
	})
	select {
	case err := <-done:
		return err
	case <-s.over:
		cancel()
	case <-limited.Done():
	}
	if err, over := o.expire(s.late(method)); over {
		select { // it may be done by now, and know more
		case err = <-done:
		default:
		}
		return err
	}
	return <-done
}

// late is why a call's work was told to end.
func (s *Server) late(method string) error {
	if s.ending() {
		return errEnding
	}
	return fmt.Errorf("%s took longer than %g s (data_timeout_s)", method, s.app.Timeout.Seconds())
}

// guarded makes an error of a hook's panic.
func guarded(ctx context.Context, log *slog.Logger, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.LogAttrs(ctx, slog.LevelError, "a hook panicked", slog.String("method", what), slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
			err = errors.New("an internal fault; the server's log has it")
		}
	}()
	return f()
}

// contract is what stands around a call's work: the app is stopped before data change and launched again afterwards, and a load that fails is followed by
// a reset. What a killed server leaves half done is written down before.
func (s *Server) contract(ctx context.Context, method string, work func(context.Context) error) error {
	if method == wire.Get {
		return work(ctx)
	}
	after := context.WithoutCancel(ctx)
	pid, err := s.running()
	if err != nil {
		return err
	}
	if err := s.begin(method, pid != 0); err != nil {
		// A full disk is what a reset may cure: it goes on without.
		if method == wire.Add {
			return fmt.Errorf("nothing was loaded: %w", err)
		}
		s.log.WarnContext(ctx, "a reset can't be written down", slog.String("app", s.app.Name), slog.Any("error", err))
	}
	if pid != 0 {
		if err := s.stop(after); err != nil {
			return errors.Join(err, s.finish())
		}
	}
	err = work(ctx)
	clean := err == nil
	if err != nil && method == wire.Add {
		rerr := s.undo(after)
		clean = rerr == nil
		err = both(err, rerr)
	}
	if clean {
		if ferr := s.finish(); ferr != nil {
			s.log.WarnContext(ctx, "what was under way can't be unwritten", slog.String("app", s.app.Name), slog.Any("error", ferr))
		}
	}
	if pid != 0 && !s.ending() {
		if lerr := s.launch(after); lerr != nil {
			err = both(err, fmt.Errorf("launch the app again: %w", lerr))
		}
	}
	return err
}

// undo is the reset after a load that failed, in a time of its own.
func (s *Server) undo(ctx context.Context) error {
	reset := s.resetter()
	if reset == nil {
		return errors.New("the app has nothing that resets it: part of the load may be left")
	}
	ctx, cancel := context.WithTimeout(ctx, s.app.Timeout)
	defer cancel()
	if err := guarded(ctx, s.log, wire.Reset, func() error { return reset(ctx) }); err != nil {
		return fmt.Errorf("the reset after it failed too: %w", err)
	}
	return nil
}

// both is two errors as one text of a line; either may be nil.
func both(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return fmt.Errorf("%w; %w", err, more)
}
