// Package bundle reads a bundle folder, resolves its names and plans what is written. It is pure: it opens no store and runs nothing.
//
// The three stages collect all their problems, and a stage with errors stops the later ones:
//
//	Parse    folder -> entries             (files, toml, json, names, ids)
//	Resolve  names  -> ids, types          (the whole bundle)
//	Plan     what is written, in order     (what a selection reaches; reads stores through View)
package bundle

import (
	"context"
	"io"
	"io/fs"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/task"
)

// View answers what a plan needs to know of the store that the bundle is written to.
type View interface {
	// Stored is the version asked for (0: the latest) of an entity; false when it doesn't exist.
	Stored(ctx context.Context, k ref.Kind, id string, version int) (Stored, bool, error)
}

// Stored is an entity of the store.
type Stored struct {
	Version int
	Type    string
	Body    []byte // its document
}

// Selection is what of a bundle to write and run. Empty: every eval, or every task where there is no eval.
type Selection struct {
	// All is every entry of the bundle, also those that no task needs. Nothing else is looked at then.
	All   bool
	Tasks []string // names or ids, from --task
	Evals []string // from --eval
}

// Plan is what a bundle writes and runs.
type Plan struct {
	Root   string   // as shown to people
	IDRoot string   // "@local/~/b"
	Writes []*Write // in write order: bundle order (kind, then name by code point), needs first
	Run    []*Write // the tasks to run, a subset of Writes
	Evals  []*EvalRun
	// LeftOut are tasks that no selected eval names, by label.
	LeftOut []string
}

// EvalRun is an eval to run with its tasks.
type EvalRun struct {
	Write *Write
	Tasks []*Write
}

// Write is one entity to store, with what its ledger digest is made of.
type Write struct {
	Bundle string // id root of the bundle that it belongs to: the plan's, or that of an installed bundle which it is pulled from
	Kind   ref.Kind
	ID     string
	Type   string
	Label  string   // "artifacts/greeting", "tasks/hello.json"
	Config doc.Node // resolved: names are ids; absent for skills (hashed as null)
	Files  []File   // sorted by path
	Plugin bool     // its type is a plugin's: Fields are its config
	// Pins are what its document references by version, in the document's order. Tasks and evals have none: they take the latest.
	Pins []Pin
	// Needs are the earlier writes of this plan among Pins, each once.
	Needs []*Write
	// StoreRefs are unpinned references to stored entities, "artifact @local/x" -> the version read.
	StoreRefs map[string]int
	// Registry is the image that a registry has and the write names; nil for everything else.
	Registry *Registry
	Task     *task.Task // of a task
	Eval     *task.Eval // of an eval
	// Fields are what its document says besides files and pins, as its type needs: a file's description, a cli's command_name.
	Fields map[string]any
}

// Registry is an image that a registry has.
type Registry struct {
	Ref string // as authored: "host/repository", with a tag, a digest or both
	// Pos and Where are those of problems with it.
	Pos   diag.Pos
	Where string
}

// Pin is a reference that a document keeps with a version.
type Pin struct {
	Field   string // of the config: "file", "environment_artifacts", "image"
	Kind    ref.Kind
	ID      string
	Version int    // of a store's entity
	Type    string // of what it names
	Write   *Write // an earlier write of the plan, which gives the version; nil for a store's entity
}

// File is one file of a Write.
type File struct {
	Path string // relative, "/"-separated
	Mode fs.FileMode
	Size int64
	// HashMode adds "+<octal mode>" to the digest when the mode is not 0644: files of built images.
	HashMode bool

	fs fs.FS
	at string // in fs
}

// Open opens the file for reading without blocking. What is no regular file any more is an error. On a folder of this machine it is an *os.File.
func (f *File) Open() (io.ReadCloser, error) {
	r, err := f.fs.Open(f.at)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errSpecial
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// ReadTo reads the file whole, through buf, and writes it to w. It is Open with less to do where there are many small files.
func (f *File) ReadTo(w io.Writer, buf []byte) (int64, error) {
	if d, ok := f.fs.(*folder); ok {
		return d.readTo(f.at, w, buf)
	}
	r, err := f.Open()
	if err != nil {
		return 0, err
	}
	return readTo(r, w, buf)
}

// readTo writes what r holds to w, through buf, and closes it.
func readTo(r io.ReadCloser, w io.Writer, buf []byte) (int64, error) {
	defer func() { _ = r.Close() }() // nothing was written
	return io.CopyBuffer(w, struct{ io.Reader }{r}, buf)
}
