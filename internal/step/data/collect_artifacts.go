package data

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Where collect_artifacts leaves what it stored: of each step, and of the last one.
const (
	CollectedPath = "metadata/collected_artifacts"
	artifactsPath = "metadata/artifacts"
	universePath  = "metadata/file_artifact_universe"
)

// collectTries bounds how often the write is planned again: each time another step has stored under the same id.
const collectTries = 20

// Writer is a Store that can be written.
type Writer interface {
	Store
	Begin(ctx context.Context) (store.Stage, error)
}

// CollectArtifacts copies files out of a sandbox and stores them as a file universe that has the run's id.
type CollectArtifacts struct {
	store Writer
	boxes step.Boxes
}

// NewCollectArtifacts makes the executor.
func NewCollectArtifacts(s Writer, b step.Boxes) *CollectArtifacts { return &CollectArtifacts{s, b} }

var _ step.Preflighter = (*CollectArtifacts)(nil)

// Preflight tells which sources can't be collected from, and which endings no id can have.
func (e *CollectArtifacts) Preflight(_ context.Context, d doc.Node, _ step.Plan) diag.List {
	var l diag.List
	refuse := func(field, code, summary, fix string) {
		l.Add(diag.Problem{Pos: d.Get(field).Pos(), Where: field, Code: code, Summary: summary, Fix: fix})
	}
	if f := "env_id"; !d.Get(f).IsNull() {
		refuse(f, "data.target", "files can only be collected from sandboxes and containers by this version of agent-env", "name the source in sandbox_name")
	}
	if suffix := d.Get("universe_id_suffix").Text(); suffix != "" {
		err := ref.CheckLocal(ref.LocalPrefix + "x" + suffix)
		if err == nil && strings.Contains(suffix, ref.DerivedMark) {
			err = fmt.Errorf("%s marks what is derived from an id", ref.DerivedMark)
		}
		if err != nil {
			refuse("universe_id_suffix", "data.id", "can't end an id: "+err.Error(), "use letters, digits and -")
		}
	}
	return l
}

// collected is what CollectedPath holds of a step. Artifacts and Universe are what the systems that the fields come from leave too.
type collected struct {
	Artifacts map[string]collectedFile `json:"artifacts"` // by path, at most maxListed
	Universe  *artifact.Pin            `json:"file_artifact_universe"`
	Sandbox   string                   `json:"sandbox_name"`
	Base      string                   `json:"base_path"`
	Count     int                      `json:"file_count"` // links and empty folders included
	Bytes     int64                    `json:"total_bytes"`
}

type collectedFile struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Size    int64  `json:"size"`
}

// Run copies, stores, and records what it stored.
func (e *CollectArtifacts) Run(ctx context.Context, c *step.Call) error {
	paths, named, err := wants(c)
	if err != nil {
		return err
	}
	name := c.Doc.Get("sandbox_name").Text()
	target, err := step.TargetBox(c.State, c.Doc)
	if err != nil {
		return err
	}
	box, err := e.boxes.Box(ctx, c.Run, target)
	if err != nil {
		return boxError(err)
	}
	exclude := map[string]bool{}
	for _, n := range c.Doc.Get("exclude_basenames").Items() {
		exclude[n.Text()] = true
	}
	warn := func(message string, attrs ...any) { c.Log.Warn(message, attrs...) }
	for try := 1; ; try++ {
		stage, err := e.store.Begin(ctx)
		if err != nil {
			return step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		k := newCollector(box, stage, exclude, warn)
		rec, err := e.attempt(ctx, c, k, paths, named)
		_ = stage.Discard() // does nothing after Commit
		if errors.Is(err, store.ErrConflict) && try < collectTries {
			warn = func(string, ...any) {} // they have been told of
			continue
		}
		if err != nil {
			return err
		}
		rec.Sandbox, rec.Base = name, c.Doc.Get("base_path").Text()
		return record(c, rec)
	}
}

func record(c *step.Call, rec collected) error {
	if rec.Universe == nil {
		c.Log.Info("there was nothing to collect", "base_path", rec.Base)
		return c.Out.Set(step.Child(CollectedPath, c.Step), rec)
	}
	c.Log.Info("collected", "artifact", rec.Universe.ID, "version", rec.Universe.Version, "files", rec.Count, "bytes", rec.Bytes)
	return errors.Join(c.Out.Set(step.Child(CollectedPath, c.Step), rec), c.Out.Set(artifactsPath, rec.Artifacts), c.Out.Set(universePath, rec.Universe))
}

// attempt copies everything into a stage and commits it as the next version of the universe.
func (e *CollectArtifacts) attempt(ctx context.Context, c *step.Call, k *collector, paths []wanted, named bool) (collected, error) {
	rec := collected{Artifacts: map[string]collectedFile{}}
	for _, w := range paths {
		err := k.collect(ctx, w)
		switch {
		case errors.Is(err, errAbsent):
			k.warn("left out: it does not exist", "path", w.from)
		case err != nil:
			return rec, err
		}
	}
	if err := errors.Join(k.follow(ctx), k.settle(ctx)); err != nil {
		return rec, err
	}
	files := k.sorted()
	if len(files) == 0 {
		if named {
			return rec, e.nothing(ctx, c, k, paths)
		}
		return rec, nil
	}
	id := c.Run + c.Doc.Get("universe_id_suffix").Text()
	ids := []string{id}
	for _, f := range files {
		ids = append(ids, ref.FileID(id, f.Path))
	}
	latest, err := e.store.Latest(ctx, store.Artifact, ids)
	if err != nil {
		return rec, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	next := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: latest[id].Version + 1} }
	created := time.Now().UTC().Truncate(time.Microsecond)
	pin := next(id)
	for _, d := range artifact.NewFileUniverse(pin, files, next) {
		k.stage.Doc(store.Doc{
			Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(created), Objects: d.Objects, Created: created,
		}, store.LatestIs(latest[d.ID].Version))
	}
	if err := k.stage.Commit(ctx); err != nil {
		if errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return rec, err
		}
		return rec, step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	rec.Universe, rec.Count, rec.Bytes = &pin, len(files), 0
	for _, f := range files {
		rec.Bytes += f.Size
		if f.Digest != "" && len(rec.Artifacts) < maxListed {
			own := next(ref.FileID(id, f.Path))
			rec.Artifacts[f.Path] = collectedFile{own.ID, own.Version, f.Size}
		}
	}
	return rec, nil
}

// nothing is the error of named paths that gave nothing.
func (e *CollectArtifacts) nothing(ctx context.Context, c *step.Call, k *collector, paths []wanted) error {
	var names []string
	for _, w := range paths {
		names = append(names, diag.Repr(w.from))
	}
	const most = 10
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	why := "none of the named files could be collected"
	if info, err := k.box.Stat(ctx, c.Doc.Get("base_path").Text()); errors.Is(err, fs.ErrNotExist) {
		why += fmt.Sprintf(", and there is no folder %s", c.Doc.Get("base_path").Text())
	} else if err == nil && !info.IsDir() {
		why += fmt.Sprintf(", and %s is no folder", c.Doc.Get("base_path").Text())
	}
	return step.Errorf("NothingCollected", "%s: %s%s", why, strings.Join(names, ", "), more)
}
