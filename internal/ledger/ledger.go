// Package ledger writes what a bundle plans into a store, and keeps account of it: for each entity a row with the digest of everything that it was
// made of. An entity whose digest stays as it was is not written again.
//
// One Stage holds a whole write: bytes, documents and rows become visible together or not at all. A writer that loses a race plans again and finds
// what the winner wrote. A dry run is the same code, stopped before the Stage.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Scheme is the version of the digest's formula.
const Scheme = 2

// attempts bounds how often a write is planned again. Racers of one bundle need two; more means that files change all the time.
const attempts = 20

// Options of Write.
type Options struct {
	// DryRun stops before anything is written.
	DryRun bool
	// Make says what is stored of artifacts whose type is a plugin's; nil: there are none.
	Make Maker
	// Pin finds the digests of images of registries; nil: there is no way to ask.
	Pin Pinner
	// Waiting is called once when another writer got in between and the write is planned again. It may be nil.
	Waiting func()
}

// Maker makes what is stored of an artifact whose type is a plugin's. put stores the content of a file; it may be called from several goroutines.
type Maker func(ctx context.Context, w *bundle.Write, put func(io.Reader) (ref.Digest, int64, error)) (Made, error)

// Made is what is stored of an artifact of a plugin's type.
type Made struct {
	Body  map[string]any
	Files []artifact.Bytes
}

// Line says what becomes of one entity.
type Line struct {
	Label     string   `json:"label"`
	Kind      string   `json:"kind"`
	ID        string   `json:"id"`
	Version   int      `json:"version"`
	Unchanged bool     `json:"unchanged"`
	Reasons   []string `json:"reasons,omitempty"`
	// Image is a registry's image that it is: with the digest that it is pinned to, or in a dry run without one where the write would ask for it.
	Image string `json:"image,omitempty"`
}

// String is the line as people and scripts read it: "artifacts/greeting: v1 (new)", "tasks/hello.json: v1, unchanged". Of an image of a registry it says
// what it is pinned to.
func (l Line) String() string {
	text := fmt.Sprintf("%s: v%d", l.Label, l.Version)
	if l.Unchanged {
		text += ", unchanged"
	} else {
		text += " (" + strings.Join(l.Reasons, "; ") + ")"
	}
	if _, digest, pinned := strings.Cut(l.Image, "@"); pinned {
		text += ", pinned to " + digest
	} else if l.Image != "" {
		text += ", pins at write"
	}
	return text
}

// Result is what a write did, or would do.
type Result struct {
	Lines []Line // one for each entry of Plan.Writes, in that order
	// Versions are what Plan.Writes have, or would get.
	Versions map[*bundle.Write]int
}

// Written counts the lines that are not unchanged.
func (r Result) Written() int {
	n := 0
	for _, l := range r.Lines {
		if !l.Unchanged {
			n++
		}
	}
	return n
}

// Write brings the store to what p plans. It reads every file of p and writes what differs from what the store has, all of it or nothing.
func Write(ctx context.Context, st store.Store, p *bundle.Plan, o Options) (Result, error) {
	waited := false
	var last error
	asked := pins{}
	for range attempts {
		w := &writer{store: st, plan: p, options: o, pins: asked}
		err := w.once(ctx)
		switch {
		case err == nil:
			return w.result(), nil
		case errors.Is(err, store.ErrConflict):
			if !waited && o.Waiting != nil {
				o.Waiting()
			}
			waited = true
		case errors.Is(err, errChanged), errors.Is(err, errPruned):
		default:
			return Result{}, err
		}
		last = err
	}
	if errors.Is(last, errChanged) {
		return Result{}, fmt.Errorf("%w; run again when nothing writes to the bundle's folder", last)
	}
	return Result{}, fmt.Errorf("writing the bundle, tried %d times: %w", attempts, last)
}

// errPruned: bytes that the store had are gone from it before the commit that names them.
var errPruned = errors.New("the store was pruned in between")

// errChanged: a file had other bytes when it was stored than when it was read before.
var errChanged = errors.New("changed while it was being written")

// writer is one attempt.
type writer struct {
	store   store.Store
	plan    *bundle.Plan
	options Options
	pins    pins
	created time.Time
	writes  []*write
	of      map[*bundle.Write]*write
}

// write is one planned entity and what is known of it.
type write struct {
	*bundle.Write
	row      *row   // the newest of the ledger; nil for none
	latest   int    // in the store; 0 for none
	stored   []byte // the document of latest
	pinned   string // the reference of a registry's image with its digest; "" until it is known
	version  int    // it has, or gets
	same     bool
	reasons  []string
	digests  []fileDigest // of Files; nil until read
	inputs   inputs
	made     Made           // of a plugin's type
	children map[string]int // latest versions of documents that belong to it
}

func (w *writer) once(ctx context.Context) error {
	w.of = make(map[*bundle.Write]*write, len(w.plan.Writes))
	for _, p := range w.plan.Writes {
		x := &write{Write: p}
		w.writes = append(w.writes, x)
		w.of[p] = x
	}
	if err := w.read(ctx); err != nil {
		return err
	}
	if err := w.hash(ctx); err != nil {
		return err
	}
	changed := false
	for _, x := range w.writes { // needs come before what needs them
		w.decide(x)
		changed = changed || !x.same
	}
	w.keepPins()
	if w.options.DryRun || !changed {
		return nil
	}
	if err := w.pinAll(ctx); err != nil {
		return err
	}
	return w.commit(ctx)
}

func (w *writer) result() Result {
	r := Result{Versions: make(map[*bundle.Write]int, len(w.writes))}
	for _, x := range w.writes {
		r.Versions[x.Write] = x.version
		r.Lines = append(r.Lines, Line{
			Label: x.Label, Kind: string(x.Kind), ID: x.ID, Version: x.version, Unchanged: x.same, Reasons: x.reasons, Image: x.image(),
		})
	}
	return r
}
