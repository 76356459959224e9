// Package sleep waits for a while, or until nobody wants that any more. It knows no clock but the one of package time.
package sleep

import (
	"context"
	"time"
)

// For waits for d: nil when it is over, the cause of ctx's end where ctx ended first, or before.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
