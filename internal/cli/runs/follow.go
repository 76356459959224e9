package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// lookAgain is how often a follower looks whether anybody still drives the run that it follows.
const lookAgain = time.Second

// errIdle is the error of following a run that nobody drives any more.
var errIdle = errors.New("nobody drives the run any more")

// follow yields a run's events until its end, as Log.Follow does, and gives up when nobody is left who could end it.
func follow(ctx context.Context, log runlog.Log, id string) iter.Seq2[runlog.Event, error] {
	return func(yield func(runlog.Event, error) bool) {
		ctx, stop := context.WithCancelCause(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { stop(idle(ctx, log, id)) })
		defer wg.Wait()
		defer stop(nil)
		for e, err := range log.Follow(ctx, id, 0) {
			if err != nil && errors.Is(context.Cause(ctx), errIdle) {
				err = context.Cause(ctx)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// idle waits until nobody drives the run, twice in a row: between two owners there may be a moment.
func idle(ctx context.Context, log runlog.Log, id string) error {
	t := time.NewTicker(lookAgain)
	defer t.Stop()
	for seen := 0; seen < 2; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		sum, err := log.Get(ctx, id)
		switch {
		case err != nil:
			return err
		case sum.Status == runlog.Interrupted:
			seen++
		default:
			seen = 0
		}
	}
	return fmt.Errorf("%s: %w; agent-env runs resume goes on with it, agent-env runs cancel ends it", id, errIdle)
}
