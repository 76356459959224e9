package mem

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

var errDone = errors.New("the stage has been committed or discarded")

type stage struct {
	s         *Store
	cancelled func() error

	mu      sync.Mutex
	done    bool
	objects map[ref.Digest][]byte
	changes []store.Change
	require []func(context.Context, store.Docs) error
}

// Begin starts a write.
func (s *Store) Begin(ctx context.Context) (store.Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &stage{s: s, cancelled: ctx.Err, objects: map[ref.Digest][]byte{}}, nil
}

func (g *stage) Put(r io.Reader) (ref.Digest, int64, error) {
	if err := g.cancelled(); err != nil {
		return "", 0, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return "", 0, err
	}
	d := ref.DigestOf(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return "", 0, errDone
	}
	g.objects[d] = b
	return d, int64(len(b)), nil
}

func (g *stage) Doc(d store.Doc, c store.Cond) { g.add(store.Change{Doc: clone(d), Cond: c}) }

func (g *stage) Delete(k store.Kind, id string, version int) {
	g.add(store.Change{Doc: store.Doc{Kind: k, ID: id, Version: version}, Delete: true})
}

func (g *stage) Require(f func(context.Context, store.Docs) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.require = append(g.require, f)
}

func (g *stage) add(c store.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, c)
}

func (g *stage) Discard() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done, g.objects, g.changes, g.require = true, nil, nil, nil
	return nil
}

func (g *stage) Commit(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return errDone
	}
	g.done = true
	if err := ctx.Err(); err != nil {
		return err
	}
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	for _, f := range g.require {
		if err := f(ctx, held{g.s}); err != nil {
			return err
		}
	}
	return g.s.apply(g.objects, g.changes)
}

// apply works on copies of the version lists that change, and swaps them in when everything has passed.
func (s *Store) apply(objects map[ref.Digest][]byte, changes []store.Change) error {
	lists := map[key][]*row{}
	var added []*row
	gone := map[*row]bool{}
	now := s.now().UTC().Truncate(time.Microsecond)
	seq := s.seq
	for _, c := range changes {
		k := key{c.Doc.Kind, c.Doc.ID}
		list, ok := lists[k]
		if !ok {
			list = slices.Clone(s.byID[k])
		}
		latest := 0
		if n := len(list); n > 0 {
			latest = list[n-1].doc.Version
		}
		if err := c.Check(latest); err != nil {
			return err
		}
		if c.Delete {
			lists[k] = slices.DeleteFunc(list, func(r *row) bool {
				if c.Doc.Version == 0 || r.doc.Version == c.Doc.Version {
					gone[r] = true
				}
				return gone[r]
			})
			continue
		}
		for _, o := range c.Doc.Objects {
			if _, here := objects[o]; !here && s.objects[o] == nil {
				return store.Dangling(c.Doc, o)
			}
		}
		d := c.Doc
		if d.Created.IsZero() {
			d.Created = now
		}
		d.Created = d.Created.UTC().Truncate(time.Microsecond)
		seq++
		r := &row{doc: d, seq: seq}
		lists[k] = append(list, r)
		added = append(added, r)
	}
	for d, b := range objects {
		if s.objects[d] == nil {
			s.objects[d] = append([]byte{}, b...)
		}
	}
	s.seq = seq
	s.rows = append(s.rows, added...)
	s.rows = slices.DeleteFunc(s.rows, func(r *row) bool { return gone[r] })
	for k, list := range lists {
		for i, r := range list {
			r.until = 0
			if i+1 < len(list) {
				r.until = list[i+1].seq
			}
		}
		if len(list) == 0 {
			delete(s.byID, k)
			continue
		}
		s.byID[k] = list
	}
	return nil
}
