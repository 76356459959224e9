// Package taskstore keeps tasks and evals that people write into a store by hand: it checks a document and everything that it names against the
// store, writes it as a new version in one Stage, and reads it back. The documents are those that internal/ledger stores for a bundle.
//
// An id is a local one ("@local/…") or a bare one ("mail/smoke"). References in a stored task are ids, never a bundle's names; what a step of the
// task writes keeps the id that it is given.
package taskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// attempts bounds how often a write is planned again. Each conflict means that somebody else's write got in, so racers need as many as they are.
const attempts = 100

// Store writes and reads tasks and evals.
type Store struct {
	store store.Store
	kinds *catalog.Set[*step.Kind]
}

// New is a Store over another; kinds are the step types that tasks may have.
func New(s store.Store, kinds *catalog.Set[*step.Kind]) *Store { return &Store{s, kinds} }

// Stored is one version of a task or eval.
type Stored struct {
	Kind    store.Kind
	ID      string
	Version int
	Owner   string // the bundle that wrote it; "" for one that was written by hand
	Created time.Time
	// List is what it is made of: a task's steps, an eval's tasks ({task_id, task_version}).
	List doc.Node
}

// Label names it in problems.
func (s Stored) Label() string { return fmt.Sprintf("%s %s v%d", s.Kind, diag.Repr(s.ID), s.Version) }

// Get is one version of a task or eval; version 0 is the latest. ErrNotFound, with what was meant perhaps.
func (s *Store) Get(ctx context.Context, k store.Kind, id string, version int) (Stored, error) {
	d, err := s.store.Get(ctx, k, id, version)
	if errors.Is(err, store.ErrNotFound) {
		return Stored{}, s.notFound(ctx, k, id, version)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("reading %s %s: %w", k, diag.Repr(id), err)
	}
	return read(d)
}

// read takes a document apart.
func read(d store.Doc) (Stored, error) {
	out := Stored{Kind: d.Kind, ID: d.ID, Version: d.Version, Owner: d.Owner, Created: d.Created}
	t, l := doc.ParseJSON(out.Label(), d.Body)
	if t != nil && !l.HasErrors() {
		out.List = t.Root().Get(member(d.Kind))
	}
	if out.List.Kind() != doc.Array {
		return Stored{}, fmt.Errorf("%s: %w", out.Label(), store.ErrCorrupt)
	}
	return out, nil
}

// member is the name of the list in a kind's documents.
func member(k store.Kind) string {
	if k == store.Eval {
		return "tasks"
	}
	return "steps"
}

// notFound says what is missing, and what may have been meant.
func (s *Store) notFound(ctx context.Context, k store.Kind, id string, version int) error {
	if version > 0 {
		if d, err := s.store.Get(ctx, k, id, 0); err == nil {
			return fmt.Errorf("version %d of %s %s is %w; the latest is version %d", version, k, diag.Repr(id), store.ErrNotFound, d.Version)
		}
	}
	fix := fmt.Sprintf("agent-env %s list shows what is", k)
	if ids, err := known(ctx, s.store, k); err == nil {
		near := diag.Nearest(id, ids)
		if i := slices.IndexFunc(ids, func(other string) bool { return strings.HasSuffix(other, "/"+id) }); id != "" && i >= 0 {
			near = ids[i] // people see the end of ids wherever a bundle is run
		}
		if near != "" {
			fix = "did you mean " + diag.Repr(near) + "?"
		}
	}
	return fmt.Errorf("%s %s is %w; %s", k, diag.Repr(id), store.ErrNotFound, fix)
}

// List is part of all tasks or evals whose ids begin with prefix, the latest version of each, newest first; more tells whether others follow.
func (s *Store) List(ctx context.Context, k store.Kind, prefix string, skip, take int) (out []Stored, more bool, err error) {
	const most = 500 // documents asked for at once
	q := store.Query{Kind: k, Prefix: prefix}
	for {
		q.Limit = min(skip+take-len(out)+1, most)
		page, err := s.store.List(ctx, q)
		if err != nil {
			return nil, false, fmt.Errorf("listing %ss: %w", k, err)
		}
		docs := page.Docs[min(skip, len(page.Docs)):]
		skip -= len(page.Docs) - len(docs)
		for _, d := range docs {
			if len(out) == take {
				return out, true, nil
			}
			x, err := read(d)
			if err != nil {
				return nil, false, err
			}
			out = append(out, x)
		}
		if page.Next == "" {
			return out, false, nil
		}
		q.After = page.Next
	}
}

// Written is what a write stored.
type Written struct {
	ID      string
	Version int
	N       int // steps or tasks
}

// draft is a document to write, with what must be in the store for it.
type draft struct {
	list  doc.Node
	needs []need
	l     diag.List
}

// errGone: what a document names went away between its check and the commit.
var errGone = errors.New("something that it names was removed meanwhile")

// write stores what plan makes as the next version of a document, all of it or nothing. When another writer got in between, it plans again.
func (s *Store) write(ctx context.Context, k store.Kind, id string, plan func() (draft, error)) (Written, diag.List, error) {
	if err := ref.CheckID(id); err != nil {
		return Written{}, diag.List{{Code: "id", Summary: err.Error()}}, nil
	}
	var err error
	for range attempts {
		var latest map[string]store.Doc
		if latest, err = s.store.Latest(ctx, k, []string{id}); err != nil {
			break
		}
		d, perr := plan()
		if perr != nil || d.l.HasErrors() {
			return Written{}, d.l, perr
		}
		out := Written{ID: id, Version: latest[id].Version + 1, N: d.list.Len()}
		err = s.commit(ctx, k, out, d)
		if err == nil {
			return out, d.l, nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, errGone) {
			break
		}
	}
	return Written{}, nil, fmt.Errorf("writing %s %s: %w", k, diag.Repr(id), err)
}

func (s *Store) commit(ctx context.Context, k store.Kind, w Written, d draft) error {
	g, err := s.store.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = g.Discard() }() // does nothing after Commit
	created := time.Now().UTC().Truncate(time.Microsecond)
	body := artifact.Document{
		Pin: artifact.Pin{ID: w.ID, Version: w.Version}, Type: string(k), Fields: map[string]any{member(k): d.list},
	}.Body(created)
	g.Doc(store.Doc{Kind: k, ID: w.ID, Version: w.Version, Type: string(k), Body: body, Created: created}, store.LatestIs(w.Version-1))
	if len(d.needs) == 0 {
		return g.Commit(ctx)
	}
	g.Require(func(ctx context.Context, docs store.Docs) error {
		have, err := find(ctx, docs, d.needs)
		if err != nil {
			return err
		}
		for _, n := range d.needs {
			if e, ok := have[n.entity]; !ok || n.typ != "" && e.Type != n.typ {
				return errGone
			}
		}
		return nil
	})
	return g.Commit(ctx)
}
