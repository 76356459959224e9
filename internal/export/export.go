// Package export writes what a store holds as a bundle: a task, or an eval with its tasks, and every environment, agent and artifact that they use,
// each in a folder of its own. It also makes bundles from templates.
//
// An export is gathered first and written then: gathering reads documents and finds every problem; writing copies files into a folder beside the
// target, which is checked as any bundle is, made durable, and put in place by one rename. So a target is whole or as it was.
//
// Words: what is left out is a field or value that the folder lacks on purpose, since it belongs to who ran the task or looks like a secret. What
// stays in the store is an entity that no folder can hold. What floats is a reference that names no version.
//
// Nothing here writes to a store, runs anything, or prints.
package export

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Reader is the part of a store that an export reads.
type Reader interface {
	store.Docs
	store.Objects
}

// Options are what an export depends on besides what it exports.
type Options struct {
	// Bundle is what reading the new folder depends on; its Installed tells which ids come with installed bundles.
	Bundle bundle.Options
	Store  Reader
	// Program is who exports, for people: "agent-env 0.1.0".
	Program string
	Now     time.Time
	Home    string // the user's home folder, or empty: ids of the new folder depend on it
}

// From is what to export.
type From struct {
	Kind    ref.Kind // ref.Task or ref.Eval
	ID      string
	Version int // 0: the latest
	// User keeps the fields that belong to who runs a task, and leaves what a folder can't hold in the store, for a folder that is run against the
	// same store. Without it such fields are left out, and such an entity is a problem.
	User bool
}

// Init writes From as a bundle at dir, which must be new or empty. The error of what can't be written is a diag.Refusal with all of it.
func Init(ctx context.Context, dir string, from From, o Options) (Report, error) {
	t, err := newTarget(dir, o.Home)
	if err != nil {
		return Report{}, err
	}
	x := newExporter(o, from)
	if err := x.gather(ctx); err != nil {
		return Report{}, err
	}
	if err := x.problems.Err(); err != nil {
		return Report{}, err
	}
	x.report.Bundle, x.report.IDRoot = t.dir, t.idRoot
	x.papers()
	if err := x.manifest(ctx); err != nil {
		return Report{}, err
	}
	if err := t.write(ctx, x.files, o); err != nil {
		return Report{}, err
	}
	x.report.Files = x.files.shown()
	return x.report, nil
}

// gather reads everything that belongs to what is exported.
func (x *exporter) gather(ctx context.Context) error {
	d, n, err := x.read(ctx, x.from.Kind, x.from.ID, x.from.Version)
	if err != nil {
		return err
	}
	if n.why != "" {
		return diag.List{{Code: "export.missing", Summary: n.why, Fix: "agent-env " + string(x.from.Kind) + " list shows what there is"}}.Err()
	}
	x.report.From = Origin{Kind: string(x.from.Kind), ID: d.ID, Version: d.Version}
	x.home = x.homeOf(d.ID)
	if x.from.Kind == ref.Eval {
		return x.eval(ctx, d, n.doc)
	}
	_, err = x.task(ctx, d, n.doc)
	return err
}

// homeOf is the id root of the installed bundle that an id is under: what is exported from it is written out, and what comes from others stays theirs.
func (x *exporter) homeOf(id string) string {
	if x.options.Bundle.Installed == nil {
		return ""
	}
	src, ok, err := x.options.Bundle.Installed(id)
	if err != nil || !ok {
		return ""
	}
	return src.IDRoot
}

// Origin is where a bundle came from.
type Origin struct {
	Kind    string // "task", "eval", "template"
	ID      string // of a stored entity; a template's name
	Version int    // 0 for a template
}

// String is "task @local/x v1", "template hello".
func (o Origin) String() string {
	if o.Version == 0 {
		return o.Kind + " " + o.ID
	}
	return fmt.Sprintf("%s %s v%d", o.Kind, o.ID, o.Version)
}

// Report is what an export did.
type Report struct {
	Bundle, IDRoot string // the new folder
	From           Origin
	Files          []string  // what the folder holds, for people: files at its top and entries
	Tasks          []Written // and the eval
	Written        []Written // entities
	Images         []Image
	Store          []Stays
	Needs          []Need
	Floating       []Floats
	LeftOut        []LeftOut
}

// Written is one entry of the new bundle, and what it was in the store.
type Written struct {
	Folder  string // "artifacts/greeting", "tasks/hello.json"
	Kind    ref.Kind
	Type    string
	ID      string
	Version int
}

func (w Written) String() string {
	if w.Version == 0 { // of a template
		return w.Folder + ": " + w.Type
	}
	return fmt.Sprintf("%s: %s %s v%d", w.Folder, w.Type, w.ID, w.Version)
}

// Image is an image that an entry is, or is made with.
type Image struct {
	Folder     string
	Key        string // of the entry's toml; "" for an artifact that is an image
	ID         string
	Version    int
	Dockerfile string // that it is built from
	Ref        string // of a registry, where it isn't built
	Files      int    // of its build context
	Bytes      int64
}

func (i Image) String() string {
	at := i.Folder
	if i.Key != "" && i.Key != "image" {
		at += " " + i.Key
	}
	if i.Ref != "" {
		return at + ": image " + i.Ref
	}
	return fmt.Sprintf("%s: image built from %s, %s, %s", at, i.Dockerfile, diag.Count(i.Files, "file"), size(i.Bytes))
}

// Stays is an entity that no folder can hold and that stays in the store, pinned.
type Stays struct {
	Where   string
	Kind    ref.Kind
	ID      string
	Version int
	Why     string
}

func (s Stays) String() string {
	return fmt.Sprintf("%s %s v%d: %s: %s", s.Kind, s.ID, s.Version, s.Where, s.Why)
}

// stepType is what a Need of a step is.
const stepType = "step type"

// Need is a type that the program has from elsewhere.
type Need struct {
	By    string // the distribution, git plugin or "configuration" that brings it
	Name  string
	What  string // "step type"
	Where []string
}

// Floats is a reference that names no version.
type Floats struct {
	Where string
	Kind  ref.Kind
	ID    string // "" for the configured default
	Why   string
}

func (f Floats) String() string {
	id := f.ID
	if id == "" {
		id = "(the configured default)"
	}
	return fmt.Sprintf("%s %s: %s: %s", f.Kind, id, f.Where, f.Why)
}

// LeftOut is something that the folder lacks on purpose.
type LeftOut struct {
	Where, Why string
}

func (l LeftOut) String() string { return l.Where + ": " + l.Why }

// absolute is dir as an absolute path.
func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", diag.Clean(dir), err)
	}
	return abs, nil
}
