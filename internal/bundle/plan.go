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
}

// Selection is what of a bundle to run. Empty: every eval, or every task where there is no eval.
type Selection struct {
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
	Kind   ref.Kind
	ID     string
	Type   string
	Label  string   // "artifacts/greeting", "tasks/hello.json"
	Config doc.Node // resolved: names are ids; absent for skills (hashed as null)
	Files  []File   // sorted by path
	// Needs are earlier writes of this plan that it references by version. Tasks and evals have none: they take the latest.
	Needs []*Write
	// StoreRefs are unpinned references to stored entities, "artifact @local/x" -> the version read.
	StoreRefs map[string]int
	Task      *task.Task // of a task
	Eval      *task.Eval // of an eval
	// Derived is true for writes that no entry of the folder spells (an env's image).
	Derived bool
	// Name and Description of a file artifact; Command and Entrypoint of a cli; as its type needs. The document's own fields.
	Fields map[string]any
}

// File is one file of a Write.
type File struct {
	Path string // relative, "/"-separated
	Mode fs.FileMode
	Size int64
	Open func() (io.ReadCloser, error)
	// HashMode adds "+<octal mode>" to the digest when the mode is not 0644: files of built images.
	HashMode bool
}
