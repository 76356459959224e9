package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sleep"
)

// pages waits until the frontends of websites answer.
func (v *Env) pages(ctx context.Context) error {
	var errs []error
	for _, s := range v.Servers {
		if s.backend() {
			continue
		}
		t := s.transport()
		defer t.CloseIdleConnections()
		for pause := firstLook; ; pause = min(pause*3/2, lastLook) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address()+"/", nil)
			if err != nil {
				return err
			}
			resp, err := t.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode < http.StatusInternalServerError {
					break
				}
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			if sleep.For(ctx, pause) != nil {
				errs = append(errs, fmt.Errorf("the frontend of website %s is not ready: %w", diag.Repr(s.Name), err))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// Pauses between looks at a frontend that is being started.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 200 * time.Millisecond
)
