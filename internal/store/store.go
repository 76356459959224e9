// Package store holds what every store of documents and objects promises. Documents are versioned and never edited in place;
// objects are bytes named by their digest; a Stage commits both together. The suite of all implementations is storetest.
//
// Opening a store creates nothing: the first write does. A missing store reads as an empty one.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"agentenv.internal/agentenv/internal/ref"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("not in the store")
	// ErrConflict: a Cond of the Stage no longer held. Nothing was written: read and plan again.
	ErrConflict = errors.New("another writer changed the store")
	// ErrCorrupt: an object's bytes no longer have its digest, or its file is gone.
	ErrCorrupt = errors.New("the stored bytes are damaged")
)

// Kind is a collection of documents.
type Kind string

const (
	Artifact Kind = "artifact"
	Env      Kind = "env"
	Agent    Kind = "agent"
	Task     Kind = "task"
	Eval     Kind = "eval"
	Ledger   Kind = "ledger" // id is "<kind> <entity id>", version the entity's version
	Blob     Kind = "blob"   // small bookkeeping documents of the program itself
)

// Doc is one version of a document.
type Doc struct {
	Kind    Kind
	ID      string
	Version int // 1, 2, …
	Type    string
	Owner   string       // the bundle root or other writer it belongs to; may be empty
	Body    []byte       // canonical JSON
	Objects []ref.Digest // what Body names, so that pruning knows
	Created time.Time    // microseconds, UTC; set by Commit when zero
}

// Cond is what must hold for (Kind, ID) when the Stage commits.
type Cond struct {
	Latest int  // the latest version; 0: no version exists
	Any    bool // no condition
}

// Absent: no version exists yet.
var Absent = Cond{}

// LatestIs v.
func LatestIs(v int) Cond { return Cond{Latest: v} }

// Query selects documents of one kind, newest first; the zero value of a field does not restrict.
type Query struct {
	Kind   Kind
	Type   string
	ID     string // the id itself
	Prefix string // of the id
	Owner  string
	// Own leaves out documents that belong to another one: see ref.IsDerived.
	Own bool
	// AllVersions lists every version; otherwise the latest of each id.
	AllVersions bool
	After       string // Page.Next of the page before
	Limit       int    // 0: 100
}

// Page is one page of a Query. Next is empty on the last.
type Page struct {
	Docs []Doc
	Next string
}

// Docs reads documents.
type Docs interface {
	// Get is one version; version 0 is the latest. ErrNotFound.
	Get(ctx context.Context, k Kind, id string, version int) (Doc, error)
	// Latest is the latest version of each id that exists, by id.
	Latest(ctx context.Context, k Kind, ids []string) (map[string]Doc, error)
	List(ctx context.Context, q Query) (Page, error)
}

// Objects reads bytes.
type Objects interface {
	// Open is an object's bytes; the caller closes them. Large ones are an *os.File. ErrNotFound.
	Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error)
	// Verify reads an object whole and compares its digest: ErrCorrupt, ErrNotFound.
	Verify(ctx context.Context, d ref.Digest) error
}

// Store is one place for documents and their objects.
type Store interface {
	Docs
	Objects
	Begin(ctx context.Context) (Stage, error)
	Close() error
}

// Pruner is a Store that can drop bytes that neither a document nor an event of a run in the same place names.
type Pruner interface {
	// Prune removes such objects: all of them, or those among ds when it isn't nil. With dry it only counts them.
	// What a Stage has put and not yet committed is not lost by it: such a Commit succeeds, or answers ErrConflict.
	Prune(ctx context.Context, ds []ref.Digest, dry bool) (Pruned, error)
}

// Pruned is what Prune removed, or would remove.
type Pruned struct {
	Objects int
	Bytes   int64
}

// Stage gathers one write: bytes first, then the documents that name them. Nothing of it is visible or in the way until Commit,
// and no lock is held between Begin and Commit. Put and Doc may be called from several goroutines.
type Stage interface {
	// Put stores bytes: at most 64 KiB ride in the transaction, larger ones become a file of the store. The digest is of the bytes as stored.
	Put(r io.Reader) (ref.Digest, int64, error)
	// Doc writes one version of a document: d.Version must be what c says is latest, plus one (any version above the latest with c.Any).
	Doc(d Doc, c Cond)
	// Delete removes one version (0: all of them) of a document.
	Delete(k Kind, id string, version int)
	// Require makes Commit call f before anything of the stage is written, and fail with its error. f sees the documents as they are at that
	// moment, and nobody else writes until Commit returns; it must not use them after that, nor write.
	Require(f func(ctx context.Context, d Docs) error)
	// Commit is all or nothing, and durable when it returns nil. ErrConflict: read and plan again.
	Commit(ctx context.Context) error
	// Discard drops what was put. It is legal, and does nothing, after Commit.
	Discard() error
}

// Secrets resolves `secret:` references.
type Secrets interface {
	// Secret is a value by key. ErrNotFound. Values never appear in errors.
	Secret(ctx context.Context, key string) (string, error)
}

// NotFound is an error that names what was looked for and is ErrNotFound.
func NotFound(k Kind, id string, version int) error {
	if version == 0 {
		return fmt.Errorf("%s %s: %w", k, id, ErrNotFound)
	}
	return fmt.Errorf("%s %s version %d: %w", k, id, version, ErrNotFound)
}
