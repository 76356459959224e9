package taskstore

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// entity is one version of something stored; version 0 is the latest.
type entity struct {
	kind    store.Kind
	id      string
	version int
}

// need is a reference that the store must be able to follow.
type need struct {
	entity
	typ   string // that it must have; "" for any
	where string // the place in the document, in words
	pos   diag.Pos
}

// find reads what of the needs there is.
func find(ctx context.Context, docs store.Docs, needs []need) (map[entity]store.Doc, error) {
	out := map[entity]store.Doc{}
	latest := map[store.Kind][]string{}
	for _, n := range needs {
		if n.version == 0 {
			latest[n.kind] = append(latest[n.kind], n.id)
			continue
		}
		switch d, err := docs.Get(ctx, n.kind, n.id, n.version); {
		case err == nil:
			out[n.entity] = d
		case !errors.Is(err, store.ErrNotFound):
			return nil, fmt.Errorf("looking up %s %s: %w", n.kind, diag.Repr(n.id), err)
		}
	}
	for kind, ids := range latest {
		found, err := docs.Latest(ctx, kind, ids)
		if err != nil {
			return nil, fmt.Errorf("looking up what the document names: %w", err)
		}
		for id, d := range found {
			out[entity{kind, id, 0}] = d
		}
	}
	return out, nil
}

// missing are the problems of needs that the store can't meet.
func (s *Store) missing(ctx context.Context, needs []need) (diag.List, error) {
	have, err := find(ctx, s.store, needs)
	if err != nil {
		return nil, err
	}
	var l diag.List
	hints := hints{docs: s.store}
	for _, n := range needs {
		p := diag.Problem{Pos: n.pos, Where: n.where, Code: "ref.missing", Prefixed: true}
		d, ok := have[n.entity]
		switch {
		case ok && n.typ != "" && d.Type != n.typ:
			p.Code, p.Summary = "ref.type", fmt.Sprintf("%s has the type %s in the store, but this field takes %s", diag.Repr(n.id), d.Type, n.typ)
		case ok:
			continue
		case n.version > 0:
			p.Summary = fmt.Sprintf("there is no version %d of %s %s in the store", n.version, n.kind, diag.Repr(n.id))
		default:
			p.Summary = fmt.Sprintf("there is no %s %s in the store", n.kind, diag.Repr(n.id))
		}
		if !ok {
			if p.Fix, err = hints.of(ctx, n.entity); err != nil {
				return nil, err
			}
		}
		l.Add(p)
	}
	return l, nil
}

// maxHints is for how many missing references of one document a hint is looked for.
const maxHints = 50

// hints look for what a reference to nothing may have meant.
type hints struct {
	docs  store.Docs
	ids   map[store.Kind][]string // of each kind, once needed
	asked int
}

func (h *hints) of(ctx context.Context, e entity) (string, error) {
	if h.asked++; h.asked > maxHints {
		return "", nil
	}
	if h.ids == nil {
		h.ids = map[store.Kind][]string{}
	}
	for _, k := range []store.Kind{e.kind, store.Artifact, store.Env, store.Agent, store.Task, store.Eval} {
		found, err := h.docs.Latest(ctx, k, []string{e.id})
		if err != nil {
			return "", fmt.Errorf("looking up %s %s: %w", k, diag.Repr(e.id), err)
		}
		d, ok := found[e.id]
		switch {
		case !ok:
		case k == e.kind:
			return fmt.Sprintf("its latest is version %d", d.Version), nil
		default:
			return fmt.Sprintf("the store has an entity of that id, but it is of kind %s", k), nil
		}
	}
	if _, ok := h.ids[e.kind]; !ok {
		ids, err := known(ctx, h.docs, e.kind)
		if err != nil {
			return "", err
		}
		h.ids[e.kind] = ids
	}
	if near := diag.Nearest(e.id, h.ids[e.kind]); near != "" {
		return "did you mean " + diag.Repr(near) + "?", nil
	}
	return "", nil
}

// known are the newest ids of a kind that people may have meant.
func known(ctx context.Context, docs store.Docs, k store.Kind) ([]string, error) {
	page, err := docs.List(ctx, store.Query{Kind: k, Own: true, Limit: 1000})
	if err != nil {
		return nil, fmt.Errorf("listing %ss: %w", k, err)
	}
	var ids []string
	for _, d := range page.Docs {
		ids = append(ids, d.ID)
	}
	return ids, nil
}

// needOf is the need of a reference to id. A reference that can't be an id is a problem; ok is false then.
func needOf(k ref.Kind, id string, pin doc.Node, typ, where string, pos diag.Pos, l *diag.List) (n need, ok bool) {
	n = need{entity: entity{kind: store.Kind(k), id: id}, typ: typ, where: where, pos: pos}
	v, _ := pin.Int()
	n.version = int(min(max(v, 0), 1<<31-1)) // the schema has told of what is no version
	if why := idFault(id); why != "" {
		l.Add(diag.Problem{Pos: pos, Where: where, Code: "ref.id", Summary: why, Prefixed: true})
		return n, false
	}
	return n, true
}

// idFault is why text can't be the id of anything stored. Derived ids may be longer than those that people give.
func idFault(id string) string {
	var err error
	if ref.IsLocal(id) {
		err = ref.CheckLocal(id)
	} else {
		err = ref.CheckID(id)
	}
	switch {
	case err != nil:
		return err.Error()
	case !ref.IsNFC(id):
		return diag.Repr(id) + " must be written in Unicode's composed form (NFC)"
	default:
		return ""
	}
}
