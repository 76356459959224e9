package bundlerun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// objects keeps long pieces of records in a store. Each is named by a document of its run, so that it stays until that document is deleted.
type objects struct{ store store.Store }

var _ run.Objects = objects{}

// NewObjects keeps long pieces of runs' records in a store.
func NewObjects(s store.Store) run.Objects { return objects{s} }

// Output is a long piece of a run's record, as LogLine.Object and Record name it.
func (e *Engine) Output(ctx context.Context, o runlog.Object) ([]byte, error) {
	return objects{e.Store}.Read(ctx, o)
}

// Record is a run's record with its verifications whole, however long.
func (e *Engine) Record(ctx context.Context, id string) (runlog.Record, error) {
	rec, err := runlog.Load(ctx, e.Runs, id)
	if err != nil {
		return rec, err
	}
	for name, v := range rec.Verified {
		var kept struct {
			Object *runlog.Object `json:"object"`
		}
		if len(v) > maxObjectRef || json.Unmarshal(v, &kept) != nil || kept.Object == nil || !ref.Digest(kept.Object.Digest).Valid() {
			continue
		}
		b, err := e.Output(ctx, *kept.Object)
		if err != nil {
			return rec, fmt.Errorf("the verification '%s': %w", name, err)
		}
		rec.Verified[name] = b
	}
	return rec, nil
}

// maxObjectRef is more than what names an object takes.
const maxObjectRef = 256

// OutputType is the type of the documents (of kind store.Blob) that name long pieces of runs' records.
const OutputType = "run_output"

// OutputPrefix begins the ids of the documents that name the long pieces of a run's record: who deletes the run deletes them.
func OutputPrefix(run string) string { return "run " + run + " " }

// Records keeps in a store what environments leave of runs. Dir is where files of runs under way are.
type Records struct {
	Store store.Store
	Dir   string
}

var _ deploy.Records = Records{}

// Folder is a folder of a run's own. Nothing is made.
func (r Records) Folder(run string) string {
	return r.at(ref.DigestOf([]byte(run)).Hex()[:20])
}

func (r Records) at(name string) string { return filepath.Join(r.Dir, name) }

// Open reads a piece.
func (r Records) Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	return r.Store.Open(ctx, d)
}

// Keep stores a piece of a run, named by a document of the run as other long pieces are.
func (r Records) Keep(ctx context.Context, run string, in io.Reader) (deploy.Piece, error) {
	kept, err := objects{r.Store}.keep(ctx, run, in)
	return deploy.Piece{Digest: ref.Digest(kept.Digest), Size: kept.Size}, err
}

// Keep stores a piece. The same piece twice is stored once.
func (o objects) Keep(ctx context.Context, run string, b []byte) (runlog.Object, error) {
	return o.keep(ctx, run, bytes.NewReader(b))
}

func (o objects) keep(ctx context.Context, run string, in io.Reader) (runlog.Object, error) {
	stage, err := o.store.Begin(ctx)
	if err != nil {
		return runlog.Object{}, err
	}
	d, n, err := stage.Put(in)
	if err != nil {
		return runlog.Object{}, errors.Join(err, stage.Discard())
	}
	out := runlog.Object{Digest: string(d), Size: n}
	body, err := json.Marshal(out)
	if err != nil {
		return out, errors.Join(err, stage.Discard())
	}
	stage.Doc(store.Doc{
		Kind: store.Blob, ID: OutputPrefix(run) + d.Hex(), Version: 1, Type: OutputType, Owner: run, Body: body, Objects: []ref.Digest{d},
	}, store.Absent)
	if err := stage.Commit(ctx); err != nil && !errors.Is(err, store.ErrConflict) { // a conflict: it is there
		return out, err
	}
	return out, nil
}

// Read is a piece's bytes.
func (o objects) Read(ctx context.Context, kept runlog.Object) ([]byte, error) {
	r, size, err := o.store.Open(ctx, ref.Digest(kept.Digest))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size != kept.Size {
		return nil, fmt.Errorf("%s: %w", kept.Digest, store.ErrCorrupt)
	}
	return io.ReadAll(io.LimitReader(r, size))
}
