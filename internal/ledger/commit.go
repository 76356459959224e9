package ledger

import (
	"context"
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
	if err := w.readChildren(ctx); err != nil {
		return err
	}
	w.created = time.Now().UTC().Truncate(time.Microsecond)
	for _, x := range w.writes {
		if x.same {
			continue
		}
		w.fill(x)
		docs, err := w.documents(x)
		if err != nil {
			return err
		}
		for _, d := range docs {
			latest := x.latest
			if d.ID != x.ID {
				latest = x.children[d.ID]
			}
			s.Doc(store.Doc{
				Kind: store.Kind(x.Kind), ID: d.ID, Version: d.Version, Type: d.Type, Owner: w.plan.IDRoot, Body: d.Body(w.created),
				Objects: d.Objects, Created: w.created,
			}, store.LatestIs(latest))
		}
		w.stageRow(s, x)
	}
	return s.Commit(ctx)
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
		"store": string(x.Kind), "id": x.ID, "bundle": w.plan.IDRoot, "scheme": Scheme, "digest": string(digest(x.Kind, x.ID, x.inputs)),
		"inputs": x.inputs.node(), "at": w.created.Format(artifact.TimeFormat), "version": x.version,
	}))
	s.Doc(store.Doc{
		Kind: store.Ledger, ID: rowID(x.Kind, x.ID), Version: x.version, Type: x.Type, Owner: w.plan.IDRoot, Body: body, Created: w.created,
	}, cond)
}

// readChildren asks for the latest versions of the documents that belong to what is written.
func (w *writer) readChildren(ctx context.Context) error {
	var ids []string
	for _, x := range w.writes {
		if !x.same {
			ids = append(ids, childIDs(x)...)
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
		for _, id := range childIDs(x) {
			x.children[id] = latest[id].Version
		}
	}
	return nil
}

// childIDs are the ids of the documents that belong to an entity.
func childIDs(x *write) []string {
	var ids []string
	switch x.Type {
	case artifact.FileUniverse:
		for _, f := range x.Files {
			ids = append(ids, ref.FileID(x.ID, f.Path))
		}
	}
	return ids
}

// documents are what is stored of an entity: its own document first.
func (w *writer) documents(x *write) ([]artifact.Document, error) {
	pin := artifact.Pin{ID: x.ID, Version: x.version}
	child := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: x.children[id] + 1} }
	switch {
	case x.Kind == ref.Task:
		return []artifact.Document{{Pin: pin, Type: x.Type, Fields: map[string]any{"steps": x.Config}}}, nil
	case x.Kind == ref.Eval:
		return []artifact.Document{{Pin: pin, Type: x.Type, Fields: map[string]any{"tasks": x.Eval.Tasks}}}, nil
	case x.Type == artifact.File:
		return []artifact.Document{artifact.NewFile(pin, x.bytes()[0], x.field("description"))}, nil
	case x.Type == artifact.FileUniverse:
		return artifact.NewFileUniverse(pin, x.bytes(), child), nil
	default:
		return nil, fmt.Errorf("%s: writing %s isn't supported yet", x.Label, x.Type)
	}
}

// bytes are the stored files of an entity.
func (x *write) bytes() []artifact.Bytes {
	out := make([]artifact.Bytes, len(x.Files))
	for i, f := range x.Files {
		out[i] = artifact.Bytes{Path: f.Path, Digest: x.digests[i].Digest, Size: x.digests[i].size, Mode: permissions(f.Mode) & 0o777}
	}
	return out
}

func (x *write) field(name string) string {
	s, _ := x.Fields[name].(string)
	return s
}
