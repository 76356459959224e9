package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// commit stores everything that is not the same in one Stage.
func (w *writer) commit(ctx context.Context) error {
	s, err := w.store.Begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning to write: %w", err)
	}
	defer func() { _ = s.Discard() }() // does nothing after Commit
	if err := w.put(ctx, s); err != nil {
		return err
	}
	if err := w.make(ctx, s); err != nil {
		return err
	}
	if err := w.readChildren(ctx); err != nil {
		return err
	}
	w.created = time.Now().UTC().Truncate(time.Microsecond)
	for _, x := range w.writes {
		if x.same {
			continue
		}
		w.fill(x)
		for i, d := range w.documents(x) {
			latest := x.latest
			if i > 0 {
				latest = x.children[d.ID]
			}
			s.Doc(store.Doc{
				Kind: store.Kind(x.Kind), ID: d.ID, Version: d.Version, Type: d.Type, Owner: x.Bundle, Body: d.Body(w.created),
				Objects: d.Objects, Created: w.created,
			}, store.LatestIs(latest))
		}
		w.stageRow(s, x)
	}
	s.Require(w.standing)
	err = s.Commit(ctx)
	if errors.Is(err, store.ErrNotFound) { // put left it out, since the store had it
		return fmt.Errorf("%w: %w", errPruned, err)
	}
	return err
}

// make has plugins say what is stored of artifacts of their types.
func (w *writer) make(ctx context.Context, s store.Stage) error {
	for _, x := range w.writes {
		if x.same || !x.Plugin || x.Kind != ref.Artifact {
			continue
		}
		if w.options.Make == nil {
			return fmt.Errorf("%s: nothing here writes artifacts of type %s", x.Label, x.Type)
		}
		var err error
		if x.made, err = w.options.Make(ctx, x.Write, s.Put); err != nil {
			return fmt.Errorf("%s: %w", x.Label, err)
		}
		if refs := w.references(x); len(refs) > 0 {
			x.made.Body = with(x.made.Body, artifact.References, refs)
		}
	}
	return nil
}

// stageRow notes an entity's inputs. Rows of versions that the store no longer has make way.
func (w *writer) stageRow(s store.Stage, x *write) {
	cond := store.Absent
	if x.row != nil {
		cond = store.Cond{Any: true} // the entity's own condition guards its row; between rows versions may be missing
		if x.row.Version >= x.version {
			s.Delete(store.Ledger, rowID(x.Kind, x.ID), 0)
		}
	} else if x.version > 1 {
		cond = store.Cond{Any: true}
	}
	body := doc.Canonical(doc.Build(map[string]any{
		"store": string(x.Kind), "id": x.ID, "bundle": x.Bundle, "scheme": Scheme, "digest": string(digest(x.Kind, x.ID, x.inputs)),
		"inputs": x.inputs.node(), "at": w.created.Format(artifact.TimeFormat), "version": x.version,
	}))
	s.Doc(store.Doc{
		Kind: store.Ledger, ID: rowID(x.Kind, x.ID), Version: x.version, Type: x.Type, Owner: x.Bundle, Body: body, Created: w.created,
	}, cond)
}

// readChildren asks for the latest versions of the documents that belong to what is written.
func (w *writer) readChildren(ctx context.Context) error {
	var ids []string
	for _, x := range w.writes {
		if !x.same {
			ids = append(ids, x.belongings()...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	latest, err := w.store.Latest(ctx, store.Artifact, ids)
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	for _, x := range w.writes {
		if x.same {
			continue
		}
		x.children = map[string]int{}
		for _, id := range x.belongings() {
			x.children[id] = latest[id].Version
		}
	}
	return nil
}
