package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

var errDone = errors.New("the stage has been committed or discarded")

// inMemory is how many bytes of small objects a stage holds in memory; more of them wait in a file.
const inMemory = 32 << 20

// stage is one write being gathered.
type stage struct {
	s       *Store
	ctx     context.Context //nolint:containedctx // Begin's: Put has none, and a long copy must end with it
	buffers sync.Pool

	mu      sync.Mutex
	done    bool
	objects map[ref.Digest]staged
	held    int64      // bytes of small objects in memory
	work    *workspace // made with the first file
	spill   *os.File
	spilled int64
	changes []store.Change
	require []func(context.Context, store.Docs) error
}

// staged is an object of a stage. A large one has its file in the workspace, or none when the store held it at the time of its Put.
type staged struct {
	size    int64
	data    []byte // small, in memory
	spilled bool   // small, in the spill file
	at      int64  // where there
	file    string
	large   bool
}

// Begin starts a write, and removes what writers left that have died.
func (s *Store) Begin(ctx context.Context) (store.Stage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.sweep(ctx)
	return &stage{
		s: s, ctx: ctx,
		buffers: sync.Pool{New: func() any { b := make([]byte, store.MaxInline+1); return &b }},
		objects: map[ref.Digest]staged{},
	}, nil
}

// Put stores bytes. Nothing but a large object's temporary file is written before Commit.
func (g *stage) Put(r io.Reader) (ref.Digest, int64, error) {
	d, n, err := g.put(r)
	if err != nil {
		return "", 0, fmt.Errorf("store %s: %w", g.s.root, err)
	}
	return d, n, nil
}

func (g *stage) put(r io.Reader) (ref.Digest, int64, error) {
	if err := g.ctx.Err(); err != nil {
		return "", 0, err
	}
	if f, size, ok := largeFile(r); ok {
		if d, known, err := g.known(g.ctx, f, size); err != nil {
			return "", 0, err
		} else if known {
			return d, size, g.keep(d, staged{size: size, large: true})
		}
		return g.putFile(f, size)
	}
	buf := g.buffers.Get().(*[]byte)
	defer g.buffers.Put(buf)
	n, err := io.ReadFull(r, *buf)
	switch {
	case err == nil:
		return g.putStream(io.MultiReader(bytes.NewReader(*buf), r), 0)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	default:
		return "", 0, fmt.Errorf("read what is to be stored: %w", err)
	}
	d := ref.DigestOf((*buf)[:n])
	return d, int64(n), g.keepSmall(d, (*buf)[:n])
}

// largeFile answers r as a regular file of which more than a small object is left.
func largeFile(r io.Reader) (*os.File, int64, bool) {
	f, ok := r.(*os.File)
	if !ok {
		return nil, 0, false
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, 0, false
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return f, fi.Size() - at, err == nil && fi.Size()-at > store.MaxInline
}

// keepSmall notes a small object; b is only valid during the call.
func (g *stage) keepSmall(d ref.Digest, b []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return errDone
	}
	if _, ok := g.objects[d]; ok {
		return nil
	}
	o := staged{size: int64(len(b))}
	if g.held+o.size <= inMemory {
		g.held += o.size
		o.data = append([]byte{}, b...)
		g.objects[d] = o
		return nil
	}
	if g.spill == nil {
		var err error
		if g.spill, err = g.newFile(); err != nil {
			return err
		}
	}
	if _, err := g.spill.WriteAt(b, g.spilled); err != nil {
		return err
	}
	o.at, o.spilled = g.spilled, true
	g.spilled += o.size
	g.objects[d] = o
	return nil
}

// file makes a file in the stage's workspace.
func (g *stage) file() (*os.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return nil, errDone
	}
	return g.newFile()
}

// newFile is file for those who hold the lock.
func (g *stage) newFile() (*os.File, error) {
	if g.work == nil {
		w, err := newWorkspace(g.s.path("tmp"))
		if err != nil {
			return nil, g.s.explain("write", err)
		}
		g.work = w
	}
	return g.work.file()
}

// keepFile ends the Put of a large object: with err, its file is removed.
func (g *stage) keepFile(f *os.File, d ref.Digest, n int64, err error) (ref.Digest, int64, error) {
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", 0, err
	}
	return d, n, g.keep(d, staged{size: n, file: f.Name(), large: true})
}

// keep notes a large object. Its file is removed when the stage has the object already.
func (g *stage) keep(d ref.Digest, o staged) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	have, twice := g.objects[d]
	if !g.done && (!twice || have.file == "" && o.file != "") {
		g.objects[d] = o
		return nil
	}
	if o.file != "" {
		_ = os.Remove(o.file)
	}
	if g.done {
		return errDone
	}
	return nil
}

// Doc notes a version of a document.
func (g *stage) Doc(d store.Doc, c store.Cond) {
	d.Body, d.Objects = slices.Clone(d.Body), slices.Clone(d.Objects)
	g.change(store.Change{Doc: d, Cond: c})
}

// Delete notes a removal.
func (g *stage) Delete(k store.Kind, id string, version int) {
	g.change(store.Change{Doc: store.Doc{Kind: k, ID: id, Version: version}, Delete: true})
}

// Require notes what must hold when the stage commits.
func (g *stage) Require(f func(context.Context, store.Docs) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.require = append(g.require, f)
}

func (g *stage) change(c store.Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, c)
}

// Discard drops what was put.
func (g *stage) Discard() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
	g.drop()
	return nil
}

// drop removes what was put. The files of Puts under way go with their folder.
func (g *stage) drop() {
	if g.spill != nil {
		_ = g.spill.Close()
	}
	if g.work != nil {
		g.work.remove()
	}
	g.objects, g.changes, g.require, g.spill, g.work = nil, nil, nil, nil, nil
}
