package bundlerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/runlog"
)

// keepLeft puts the films that a killed owner of a run left into the run's record, as its owner. What can't be kept is tried again by the next owner.
func (e *Engine) keepLeft(ctx context.Context, owner runlog.Owner, run string) {
	if e.Records.Dir == "" {
		return
	}
	if err := e.Records.keepLeft(ctx, owner, run); err != nil {
		e.Log.Warn("a film of the run could not be kept", "run", run, "error", err)
	}
}

func (r Records) keepLeft(ctx context.Context, owner runlog.Owner, run string) error {
	return deploy.KeepLeftFilms(ctx, r, run, func(step string, p deploy.Piece) error {
		b, err := json.Marshal(runlog.Kept{What: p.What, Env: p.Env, Instance: p.Instance, Object: runlog.Object{Digest: string(p.Digest), Size: p.Size}})
		if err != nil {
			return err
		}
		return owner.Append(ctx, runlog.Event{Kind: runlog.EnvKept, Step: step, Data: b})
	})
}

// KeepLeft puts the films that killed processes left into the records of their runs, which stay interrupted. A run that somebody drives, or takes at this moment, is
// left to them.
func (r Records) KeepLeft(ctx context.Context, runs runlog.Log) error {
	left := r.left()
	if len(left) == 0 {
		return nil
	}
	var errs []error
	for q := (runlog.Query{Status: []runlog.Status{runlog.Interrupted}, Limit: 1000}); ; {
		page, err := runs.List(ctx, q)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, s := range page.Runs {
			if left[r.Folder(s.ID)] {
				errs = append(errs, r.keepOf(ctx, runs, s.ID))
			}
		}
		if q.After = page.Next; q.After == "" {
			return errors.Join(errs...)
		}
	}
}

// Left tells whether there are films that killed processes left, or that are under way. It is one look at a folder where there are none.
func (r Records) Left() bool { return len(r.left()) > 0 }

// left are the folders with films in them.
func (r Records) left() map[string]bool {
	left := map[string]bool{}
	folders, err := os.ReadDir(r.Dir)
	if err != nil { // there is none, or nobody can keep what is in it
		return left
	}
	for _, f := range folders {
		if deploy.LeftFilms(r.at(f.Name())) {
			left[r.at(f.Name())] = true
		}
	}
	return left
}

func (r Records) keepOf(ctx context.Context, runs runlog.Log, run string) error {
	owner, err := runs.Claim(ctx, run)
	if errors.Is(err, runlog.ErrOwned) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep the films of %s: %w", run, err)
	}
	return errors.Join(r.keepLeft(ctx, owner, run), owner.Release(context.WithoutCancel(ctx)))
}
