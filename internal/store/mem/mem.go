// Package mem keeps a store and a run log in memory: for tests, and for work that shall leave nothing behind.
//
// It keeps every promise of packages store and runlog but durability, and passes the same suites.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// Options of New; the zero value is right for programs.
type Options struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Store is a store.Store. Its methods may be called from several goroutines.
type Store struct {
	now  func() time.Time
	runs *log

	mu      sync.RWMutex
	seq     int64
	rows    []*row // by seq
	byID    map[key][]*row
	objects map[ref.Digest][]byte
}

type key struct {
	kind store.Kind
	id   string
}

// row is a document with its place in the order of writes.
type row struct {
	doc   store.Doc
	seq   int64
	until int64 // seq of the version that follows; 0 for the latest
}

// New is an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{now: o.Now, runs: newLog(o.Now), byID: map[key][]*row{}, objects: map[ref.Digest][]byte{}}
}

// Runs is the store's run log.
func (s *Store) Runs() runlog.Log { return s.runs }

// Close does nothing: the memory goes with the last reference.
func (s *Store) Close() error { return nil }

// Get is one version of a document.
func (s *Store) Get(ctx context.Context, k store.Kind, id string, version int) (store.Doc, error) {
	if err := ctx.Err(); err != nil {
		return store.Doc{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return held{s}.Get(ctx, k, id, version)
}

// held reads documents while its caller holds the lock.
type held struct{ s *Store }

var _ store.Docs = held{}

// Get is one version of a document.
func (h held) Get(_ context.Context, k store.Kind, id string, version int) (store.Doc, error) {
	for _, r := range slices.Backward(h.s.byID[key{k, id}]) {
		if version == 0 || r.doc.Version == version {
			return clone(r.doc), nil
		}
	}
	return store.Doc{}, store.NotFound(k, id, version)
}

// Latest is the latest version of each id that exists.
func (s *Store) Latest(ctx context.Context, k store.Kind, ids []string) (map[string]store.Doc, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return held{s}.Latest(ctx, k, ids)
}

// Latest is the latest version of each id that exists.
func (h held) Latest(_ context.Context, k store.Kind, ids []string) (map[string]store.Doc, error) {
	out := make(map[string]store.Doc, len(ids))
	for _, id := range ids {
		if vs := h.s.byID[key{k, id}]; len(vs) > 0 {
			out[id] = clone(vs[len(vs)-1].doc)
		}
	}
	return out, nil
}

// List is a page of documents, newest first.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return held{s}.List(ctx, q)
}

// List is a page of documents, newest first.
func (h held) List(_ context.Context, q store.Query) (store.Page, error) {
	s := h.s
	cur := store.Cursor{Snapshot: s.seq, Before: s.seq + 1}
	if q.After != "" {
		var err error
		if cur, err = store.ParseCursor(q.After); err != nil {
			return store.Page{}, err
		}
	}
	limit := q.Limit
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	var p store.Page
	for _, r := range slices.Backward(s.rows) {
		if r.seq >= cur.Before || r.seq > cur.Snapshot || !matches(r, q, cur.Snapshot) {
			continue
		}
		if len(p.Docs) == limit {
			p.Next = cur.String()
			break
		}
		cur.Before = r.seq
		p.Docs = append(p.Docs, clone(r.doc))
	}
	return p, nil
}

func matches(r *row, q store.Query, snapshot int64) bool {
	d := r.doc
	return d.Kind == q.Kind && (q.Type == "" || d.Type == q.Type) && (q.Owner == "" || d.Owner == q.Owner) &&
		(q.ID == "" || d.ID == q.ID) && !(q.Own && ref.IsDerived(d.ID)) && strings.HasPrefix(d.ID, q.Prefix) && (q.AllVersions || r.until == 0 || r.until > snapshot)
}

func clone(d store.Doc) store.Doc {
	d.Body = slices.Clone(d.Body)
	d.Objects = slices.Clone(d.Objects)
	return d
}

// Prune removes objects that neither a document nor an event of a run names.
func (s *Store) Prune(ctx context.Context, ds []ref.Digest, dry bool) (store.Pruned, error) {
	var p store.Pruned
	if err := ctx.Err(); err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[ref.Digest]bool{}
	for _, r := range s.rows {
		for _, d := range r.doc.Objects {
			used[d] = true
		}
	}
	s.runs.named(used)
	for d, b := range s.objects {
		if used[d] || ds != nil && !slices.Contains(ds, d) {
			continue
		}
		p.Objects++
		p.Bytes += int64(len(b))
		if !dry {
			delete(s.objects, d)
		}
	}
	return p, nil
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }

// Open is an object's bytes.
func (s *Store) Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, ok := s.objects[d]
	if !ok {
		return nil, 0, fmt.Errorf("object %s: %w", d, store.ErrNotFound)
	}
	return reader{bytes.NewReader(b)}, int64(len(b)), nil
}

// Verify compares an object with its digest.
func (s *Store) Verify(ctx context.Context, d ref.Digest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	b, ok := s.objects[d]
	s.mu.RUnlock()
	if !ok {
		return fmt.Errorf("object %s: %w", d, store.ErrNotFound)
	}
	if ref.DigestOf(b) != d {
		return fmt.Errorf("object %s: %w", d, store.ErrCorrupt)
	}
	return nil
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Pruner = (*Store)(nil)
)
