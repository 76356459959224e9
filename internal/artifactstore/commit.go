package artifactstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// attempts bounds how often a put is planned again: each time another writer has got through.
const attempts = 100

// draft is what a put stores.
type draft struct {
	id, typ  string
	progress func(done, total int)
	files    []source
	// pins are the stored artifacts that it names, read anew at each attempt; nil for none. Problems end the put.
	pins func(ctx context.Context) ([]store.Doc, diag.List, error)
	// documents are made of the stored files, in the order of files, and of pins: the artifact's own first.
	documents func(p artifact.Pin, files []artifact.Bytes, pins []store.Doc, child artifact.Versions) ([]artifact.Document, error)
}

// Stored is what a put stored.
type Stored struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Type    string `json:"type"`
	Files   int    `json:"files"` // links and empty folders included
	Size    int64  `json:"size"`
}

func (s Stored) String() string { return name(s.ID, s.Version) }

// commit stores a draft as the next version of its id.
func (l *Library) commit(ctx context.Context, d draft) (Stored, error) {
	for range attempts {
		out, err := l.attempt(ctx, d)
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
	}
	return Stored{}, fmt.Errorf("putting %s, tried %d times: %w", diag.Clean(d.id), attempts, store.ErrConflict)
}

func (l *Library) attempt(ctx context.Context, d draft) (Stored, error) {
	ids := append([]string{d.id}, artifact.Children(d.typ, d.id, paths(d.files))...)
	pins, err := l.check(ctx, d, ids)
	if err != nil {
		return Stored{}, err
	}
	s, err := l.store.Begin(ctx)
	if err != nil {
		return Stored{}, err
	}
	defer func() { _ = s.Discard() }() // does nothing after Commit
	files, err := put(ctx, s, d.files, d.progress)
	if err != nil {
		return Stored{}, err
	}
	latest, err := l.store.Latest(ctx, store.Artifact, ids)
	if err != nil {
		return Stored{}, err
	}
	next := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: latest[id].Version + 1} }
	docs, err := d.documents(next(d.id), files, pins, next)
	if err != nil {
		return Stored{}, err
	}
	created := time.Now().UTC().Truncate(time.Microsecond)
	for _, doc := range docs {
		s.Doc(store.Doc{
			Kind: store.Artifact, ID: doc.ID, Version: doc.Version, Type: doc.Type, Body: doc.Body(created), Objects: doc.Objects, Created: created,
		}, store.LatestIs(latest[doc.ID].Version))
	}
	s.Require(func(ctx context.Context, d store.Docs) error { return present(ctx, d, pins) })
	if err := s.Commit(ctx); err != nil {
		return Stored{}, err
	}
	out := Stored{ID: d.id, Version: docs[0].Version, Type: d.typ, Files: len(files)}
	for _, f := range files {
		out.Size += f.Size
	}
	return out, nil
}

// check refuses a draft that the store rules out, and answers the artifacts that it names.
func (l *Library) check(ctx context.Context, d draft, ids []string) ([]store.Doc, error) {
	latest, err := l.store.Latest(ctx, store.Artifact, ids)
	if err != nil {
		return nil, err
	}
	var faults diag.List
	if was, ok := latest[d.id]; ok && was.Type != d.typ {
		faults.Add(diag.Problem{
			Pos: diag.Pos{File: diag.Clean(d.id)}, Code: "put.type", Summary: fmt.Sprintf("the store has it as %s, version %d, and what names it expects that", was.Type, was.Version),
			Fix: "use another id, or delete it first",
		})
	}
	delete(latest, d.id)
	for _, id := range slices.Sorted(maps.Keys(latest)) {
		if latest[id].Type == artifact.DockerImage {
			faults.Add(diag.Problem{
				Pos: diag.Pos{File: diag.Clean(d.id)}, Code: "put.taken", Summary: fmt.Sprintf("the id %s, which would be written too, is that of an image", diag.Repr(id)),
				Fix: "use another id, or rename the folder",
			})
		}
	}
	var pins []store.Doc
	if d.pins != nil {
		var more diag.List
		if pins, more, err = d.pins(ctx); err != nil {
			return nil, err
		}
		faults.Add(more...)
	}
	return pins, faults.Err()
}

// present makes sure that what a put names is still there when it commits.
func present(ctx context.Context, d store.Docs, pins []store.Doc) error {
	for _, p := range pins {
		_, err := d.Get(ctx, p.Kind, p.ID, p.Version)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s was removed: %w", name(p.ID, p.Version), store.ErrConflict)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unreadable is the error of a file that can't be opened any more.
type unreadable struct{ error }

// put stores the bytes of files, on every processor. Links and folders have none. All files that can't be opened are named.
func put(ctx context.Context, s store.Stage, files []source, progress func(done, total int)) ([]artifact.Bytes, error) {
	out := make([]artifact.Bytes, len(files))
	var mu sync.Mutex
	var faults diag.List
	work, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		work.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				b, err := files[i].put(s)
				if u, ok := errors.AsType[unreadable](err); ok {
					mu.Lock()
					faults.Add(diag.Problem{Pos: diag.Pos{File: diag.Clean(files[i].path)}, Code: "put.read", Summary: reason(u.error)})
					mu.Unlock()
					continue
				}
				if err != nil {
					return fmt.Errorf("%s: %w", diag.Clean(files[i].path), err)
				}
				out[i] = b
				if progress != nil {
					progress(1, len(files))
				}
			}
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return out, faults.Err()
}

// put stores one file. Its mode and bytes are those that the file had while it was read.
func (f source) put(s store.Stage) (artifact.Bytes, error) {
	b := artifact.Bytes{Path: f.path, Link: f.link, Folder: f.folder}
	if !f.plain() {
		return b, nil
	}
	r, err := f.open()
	if err != nil {
		return b, unreadable{err}
	}
	defer r.Close()
	b.Mode = 0o644
	if st, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		fi, err := st.Stat()
		if err != nil {
			return b, err
		}
		b.Mode = uint32(fi.Mode().Perm())
	}
	var d ref.Digest
	d, b.Size, err = s.Put(r)
	b.Digest = d
	return b, err
}
