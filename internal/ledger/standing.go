package ledger

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// standing makes sure, while nobody else writes, that what the written documents rely on has not been deleted since it was planned: entities that
// stay as they are (ErrConflict: plan again), and those of the store, whose absence a new plan of the bundle would tell of.
func (w *writer) standing(ctx context.Context, d store.Docs) error {
	same := map[store.Kind][]*write{}
	var errs []error
	for _, x := range w.writes {
		if x.same {
			same[store.Kind(x.Kind)] = append(same[store.Kind(x.Kind)], x)
			continue
		}
		for _, p := range x.Pins {
			if p.Write == nil {
				errs = append(errs, w.there(ctx, d, x, store.Kind(p.Kind), p.ID, p.Version))
			}
		}
	}
	for id, x := range w.fromStore() {
		errs = append(errs, w.there(ctx, d, x, store.Artifact, id, 0))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for k, writes := range same {
		ids := make([]string, len(writes))
		for i, x := range writes {
			ids[i] = x.ID
		}
		latest, err := d.Latest(ctx, k, ids)
		if err != nil {
			return err
		}
		for _, x := range writes {
			if latest[x.ID].Version != x.latest {
				return fmt.Errorf("%s was version %d: %w", x.Label, x.latest, store.ErrConflict)
			}
		}
	}
	return nil
}

// there tells that what x uses is gone.
func (w *writer) there(ctx context.Context, d store.Docs, x *write, k store.Kind, id string, version int) error {
	_, err := d.Get(ctx, k, id, version)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s: %s, which it uses, was deleted while it was being written: nothing is written", x.Label, diag.Clean(id))
	}
	return err
}

// fromStore are the artifacts that written tasks name and that neither this plan nor a step writes, with a write that names each.
func (w *writer) fromStore() map[string]*write {
	out := map[string]*write{}
	var ours []string
	for _, x := range w.writes {
		if x.Kind == ref.Artifact {
			ours = append(ours, x.ID)
		}
		if x.Task == nil {
			continue
		}
		for i := range x.Task.Steps {
			for _, r := range task.RefsIn(&x.Task.Steps[i]) {
				switch {
				case r.Kind != ref.Artifact:
				case r.Out:
					ours = append(ours, r.Name)
				case !x.same:
					out[r.Name] = x
				}
			}
		}
	}
	for _, id := range ours {
		delete(out, id)
	}
	return out
}
