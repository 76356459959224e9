package artifactstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Target says where Get writes: Dir or File, not both.
type Target struct {
	Dir  string // a folder, which is made when absent
	File string // for the one file of a file or environment artifact
	// Force replaces files that are there, and writes into a folder that holds others. What the artifact doesn't hold stays as it is.
	Force bool
	// Progress is told how many bytes were written since the last call, and how many there are; from several goroutines. It may be nil.
	Progress func(n, total int64)
}

// Got is what Get wrote.
type Got struct {
	Info
	Path  string `json:"path"`
	Files int    `json:"files"` // links and empty folders included
	Size  int64  `json:"size"`
}

// Get writes what one version of an artifact holds; 0 is the latest. Names, modes and links are as they were put. Every digest is checked before
// anything stands at its target: damaged bytes are all named, and nothing is written.
func (l *Library) Get(ctx context.Context, id string, version int, t Target) (Got, error) {
	d, err := Find(ctx, l.store, id, version)
	if err != nil {
		return Got{}, err
	}
	files, err := l.layout(ctx, d)
	if err != nil {
		return Got{}, err
	}
	g := getter{objects: l.store, label: name(d.ID, d.Version), files: files, target: t}
	for _, f := range files {
		g.total += f.Size
	}
	out := Got{Info: info(d), Files: len(files), Size: g.total}
	if t.File != "" {
		out.Path, err = t.File, g.toFile(ctx)
	} else {
		out.Path, err = t.Dir, g.toFolder(ctx)
	}
	return out, err
}

type getter struct {
	objects store.Objects
	label   string
	files   []artifact.Bytes
	target  Target
	total   int64
}

// copy writes the bytes of one file, checking their digest.
func (g *getter) copy(ctx context.Context, w io.Writer, d ref.Digest, buf []byte) error {
	r, _, err := store.OpenVerified(ctx, g.objects, d)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if g.target.Progress != nil {
				g.target.Progress(int64(n), g.total)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// damaged tells whether an error of copy is the store's: the bytes are gone or others.
func damaged(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound)
}

func (g *getter) damage(path string, err error) diag.Problem {
	return diag.Problem{
		Pos: diag.Pos{File: g.label}, Where: diag.Clean(path), Code: "artifact.damaged", Summary: err.Error(), Fix: "put it again from where it came from",
	}
}

// toFile writes the one file.
func (g *getter) toFile(ctx context.Context) error {
	if len(g.files) != 1 || g.files[0].Link != "" || g.files[0].Folder {
		return refusal("artifact.get", fmt.Sprintf("%s holds %s", g.label, diag.Count(len(g.files), "file")), "write them into a folder with --output-dir")
	}
	f := g.files[0]
	if fi, err := os.Stat(g.target.File); err == nil && fi.IsDir() {
		return refusal("artifact.get", diag.Clean(g.target.File)+" is a folder", "name a file, or write into it with --output-dir")
	}
	write := atomicfile.Create
	if g.target.Force {
		write = atomicfile.Write
	}
	err := write(g.target.File, 0o600, func(w io.Writer) error {
		if err := g.copy(ctx, w, f.Digest, make([]byte, 256<<10)); err != nil {
			return err
		}
		if c, ok := w.(interface{ Chmod(fs.FileMode) error }); ok {
			return c.Chmod(fs.FileMode(f.Mode))
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case damaged(err):
		return diag.List{g.damage(f.Path, unwrapPath(err))}.Err()
	case errors.Is(err, atomicfile.ErrSpecial):
		return refusal("artifact.exists", diag.Clean(g.target.File)+" is a device, a pipe or a socket, which is not replaced", "name a file")
	case errors.Is(err, fs.ErrExist):
		return refusal("artifact.exists", diag.Clean(g.target.File)+" exists already", "name another file, or replace it with --force")
	default:
		return err
	}
}

// unwrapPath is the error without the operation and path that atomicfile puts in front.
func unwrapPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// fill writes everything below a folder that nobody else uses.
func (g *getter) fill(ctx context.Context, root *os.Root) error {
	made := map[string]bool{}
	for _, f := range g.files {
		dir := f.Path
		if !f.Folder {
			dir = path.Dir(f.Path)
		}
		if made[dir] {
			continue
		}
		made[dir] = true
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var faults diag.List
	var next atomic.Int64
	work, wctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), len(g.files)) {
		work.Go(func() error {
			buf := make([]byte, 256<<10)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(g.files) {
					return nil
				}
				f := g.files[i]
				if f.Folder || f.Link != "" {
					continue
				}
				switch err := g.file(wctx, root, f, buf); {
				case damaged(err):
					mu.Lock()
					faults.Add(g.damage(f.Path, err))
					mu.Unlock()
				case err != nil:
					return err
				}
			}
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	if err := faults.Err(); err != nil {
		return err
	}
	for _, f := range g.files { // last, so that nothing is ever written through one
		if f.Link == "" {
			continue
		}
		if err := root.Symlink(f.Link, f.Path); err != nil {
			return err
		}
	}
	return nil
}

func (g *getter) file(ctx context.Context, root *os.Root, f artifact.Bytes, buf []byte) error {
	w, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = g.copy(ctx, w, f.Digest, buf)
	if err == nil {
		err = w.Chmod(fs.FileMode(f.Mode)) // whatever the umask says
	}
	return errors.Join(err, w.Close())
}
