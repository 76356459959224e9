package envstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Piece is one file of a snapshot.
type Piece struct {
	Folder string // an environment's name, or "metadata/<key>"; of PutFiles, any
	File   string // a plain file name
	io.Reader
}

// snapshotTries bounds how often a snapshot is written again: each time another one of its id got in between.
const snapshotTries = 20

// CheckSnapshotNames tells which environments a universe can't hold: data of these names could not be stored under ids of their own.
func CheckSnapshotNames(names []string) error {
	var errs []error
	for _, n := range names {
		if ref.CheckSegment(n) != nil || strings.Contains(n, ref.DerivedMark) || n == "metadata" {
			errs = append(errs, fmt.Errorf("a universe can't hold an environment called %s", diag.Repr(n)))
		}
	}
	return errors.Join(errs...)
}

// PutSnapshot stores what export hands to put, a piece at a time, as the next version of a universe. export is called again when another writer of the
// same id got in between; put may be called from several goroutines.
func PutSnapshot(ctx context.Context, s store.Store, id string, export func(ctx context.Context, put func(Piece) error) error) (Pin, error) {
	return putSnapshots(ctx, s, artifact.EnvironmentUniverse, id, export)
}

// PutFiles is PutSnapshot for a universe of files; a Piece without a Folder stands at its top.
func PutFiles(ctx context.Context, s store.Store, id string, export func(ctx context.Context, put func(Piece) error) error) (Pin, error) {
	return putSnapshots(ctx, s, artifact.FileUniverse, id, export)
}

func putSnapshots(ctx context.Context, s store.Store, typ, id string, export func(ctx context.Context, put func(Piece) error) error) (Pin, error) {
	if err := ref.CheckID(id); err != nil {
		return Pin{}, err
	}
	for range snapshotTries {
		p, err := putSnapshot(ctx, s, typ, id, export)
		if !errors.Is(err, store.ErrConflict) {
			return p, err
		}
	}
	return Pin{}, fmt.Errorf("others write %s all the time; try again", diag.Repr(id))
}

func putSnapshot(ctx context.Context, s store.Store, typ, id string, export func(ctx context.Context, put func(Piece) error) error) (Pin, error) {
	stage, err := s.Begin(ctx)
	if err != nil {
		return Pin{}, err
	}
	defer func() { _ = stage.Discard() }() // what was put is dropped by the store's own sweep at the latest
	var mu sync.Mutex
	var files []artifact.Bytes
	var paths []string
	err = export(ctx, func(p Piece) error {
		digest, n, err := stage.Put(p.Reader)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		at := path.Join(p.Folder, p.File)
		files, paths = append(files, artifact.Bytes{Path: at, Digest: digest, Size: n, Mode: 0o644}), append(paths, at)
		return nil
	})
	if err != nil {
		return Pin{}, err
	}
	ids := append(artifact.Children(typ, id, paths), id)
	for _, child := range ids {
		if err := ref.CheckID(child); err != nil {
			return Pin{}, fmt.Errorf("the snapshot's part %s: %w", diag.Repr(child), err)
		}
	}
	latest, err := s.Latest(ctx, store.Artifact, ids)
	if err != nil {
		return Pin{}, err
	}
	if was, ok := latest[id]; ok && was.Type != typ {
		return Pin{}, fmt.Errorf("%s is of type %s in the store; choose another id for the snapshot", diag.Repr(id), was.Type)
	}
	next := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: latest[id].Version + 1} }
	created := time.Now().UTC().Truncate(time.Microsecond)
	pin := next(id)
	docs := func() []artifact.Document { return artifact.NewUniverse(pin, files, nil, next) }
	if typ == artifact.FileUniverse {
		docs = func() []artifact.Document { return artifact.NewFileUniverse(pin, files, next) }
	}
	for _, d := range docs() {
		stage.Doc(store.Doc{
			Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(created), Objects: d.Objects, Created: created,
		}, store.LatestIs(latest[d.ID].Version))
	}
	if err := stage.Commit(ctx); err != nil {
		return Pin{}, err
	}
	return Pin{pin.ID, pin.Version, typ}, nil
}
