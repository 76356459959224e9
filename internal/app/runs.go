package app

import (
	"context"
	"errors"
	"os"
	"time"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// RunPrune says which runs to forget: those that nobody drives, that are older than OlderThan and not among the newest Keep.
type RunPrune struct {
	OlderThan time.Duration // since its end, or since it was made; 0 is any age
	Keep      int           // the newest so many stay, whatever they are
	Dry       bool
}

// PrunedRuns is what PruneRuns forgot, or would forget.
type PrunedRuns struct {
	Runs    []runlog.Summary // newest first
	Kept    int              // of all runs, those that stay
	Objects int              // long outputs that went with them
	Bytes   int64
}

// PruneRuns forgets runs, with what their records alone named. A run that somebody drives, or that is about to start, always stays.
func (a *App) PruneRuns(ctx context.Context, o RunPrune) (PrunedRuns, error) {
	s, err := a.Store(ctx)
	if err != nil {
		return PrunedRuns{}, err
	}
	log := s.Runs()
	var out PrunedRuns
	before := time.Now().Add(-o.OlderThan)
	n := 0
	for q := (runlog.Query{Limit: 1000}); ; {
		page, err := log.List(ctx, q)
		if err != nil {
			return PrunedRuns{}, err
		}
		for _, r := range page.Runs {
			if n++; n > max(o.Keep, 1) && idle(r) && when(r).Before(before) { // the newest is never forgotten: see runlog.Deleter
				out.Runs = append(out.Runs, r)
			} else {
				out.Kept++
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if o.Dry || n == 0 {
		return out, nil
	}
	return out, a.forget(ctx, s, &out)
}

// idle tells whether nobody drives a run, or is about to.
func idle(r runlog.Summary) bool { return r.Status.Ended() || r.Status == runlog.Interrupted }

func when(r runlog.Summary) time.Time {
	if r.Ended.IsZero() {
		return r.Created
	}
	return r.Ended
}

// forget deletes the runs that p lists, as far as they may still be, and then every long output whose run is gone: a prune that was killed in between
// is so ended by the next one.
func (a *App) forget(ctx context.Context, s *sqlite.Store, p *PrunedRuns) error {
	log := s.Runs()
	d, ok := log.(runlog.Deleter)
	if !ok {
		return errors.New("this log of runs can't forget any")
	}
	ids := make([]string, len(p.Runs))
	for i, r := range p.Runs {
		ids[i] = r.ID
	}
	deleted, err := d.Delete(ctx, ids...)
	if err != nil {
		return err
	}
	gone := make(map[string]bool, len(deleted))
	for _, id := range deleted {
		gone[id] = true
		if err := os.RemoveAll(deploy.RecordsOf(a.trajectories(), id)); err != nil {
			return err
		}
	}
	all := p.Runs
	p.Runs = nil
	for _, r := range all {
		if gone[r.ID] {
			p.Runs = append(p.Runs, r)
		} else {
			p.Kept++ // resumed meanwhile
		}
	}
	records := bundlerun.Records{Dir: a.runsDir()}
	for id := range gone { // logs of runs that were killed
		if err := os.RemoveAll(records.Folder(id)); err != nil {
			return err
		}
	}
	orphans, objects, err := orphans(ctx, s, gone)
	if err != nil || len(orphans) == 0 {
		return err
	}
	stage, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stage.Discard() }() // does nothing after Commit
	for _, id := range orphans {
		stage.Delete(store.Blob, id, 0)
	}
	if err := stage.Commit(ctx); err != nil {
		return err
	}
	freed, err := s.Prune(ctx, objects, false)
	p.Objects, p.Bytes = freed.Objects, freed.Bytes
	return err
}

// orphans are the documents of long outputs whose runs are gone, and the objects that they name.
func orphans(ctx context.Context, s *sqlite.Store, gone map[string]bool) (ids []string, objects []ref.Digest, err error) {
	log := s.Runs()
	known := map[string]bool{}
	for q := (store.Query{Kind: store.Blob, Type: bundlerun.OutputType, Limit: 1000}); ; {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range page.Docs {
			if _, seen := known[d.Owner]; !seen && !gone[d.Owner] {
				_, err := log.Get(ctx, d.Owner)
				if err != nil && !errors.Is(err, runlog.ErrNotFound) {
					return nil, nil, err
				}
				known[d.Owner] = err == nil
			}
			if !known[d.Owner] {
				ids = append(ids, d.ID)
				objects = append(objects, d.Objects...)
			}
		}
		if q.After = page.Next; q.After == "" {
			return ids, objects, nil
		}
	}
}
