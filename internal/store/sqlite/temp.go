package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/ref"
)

const (
	workSuffix  = ".work"
	publishName = "publish" // in a workspace: lines of the objects that its writer is moving into, or out of, objects/
)

var errCantSync error = unix.EINVAL

// workspace is a writer's folder in tmp/, which it keeps locked. The lock goes with the process, so that a sweep can tell who is dead.
type workspace struct {
	dir   *os.File
	count atomic.Int64
}

// newWorkspace makes a folder that no sweep takes: one that was swept between its making and its lock is given up for another.
func newWorkspace(tmp string) (*workspace, error) {
	if err := makeFolder(tmp); err != nil {
		return nil, err
	}
	for {
		var b [12]byte
		_, _ = rand.Read(b[:]) // never fails
		path := filepath.Join(tmp, hex.EncodeToString(b[:])+workSuffix)
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
		dir, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		w := &workspace{dir: dir}
		if errors.Is(flock(dir), unix.EWOULDBLOCK) {
			w.remove()
			continue
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			w.abandon()
			continue
		} else if err != nil {
			w.remove()
			return nil, err
		}
		return w, nil // on a file system without locks, sweeps lock nothing and take nothing
	}
}

func (w *workspace) path(name string) string { return filepath.Join(w.dir.Name(), name) }

// file makes a file of the workspace. What becomes an object is never written again.
func (w *workspace) file() (*os.File, error) {
	return os.OpenFile(w.path(fmt.Sprintf("%d", w.count.Add(1))), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
}

// announce writes down which objects are about to be moved, for the sweep that comes after a kill.
func (w *workspace) announce(ds []ref.Digest) error {
	f, err := os.OpenFile(w.path(publishName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, d := range ds {
		if _, err = f.WriteString(d.Hex() + "\n"); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove takes the workspace away; abandon leaves it to a later sweep.
func (w *workspace) remove() {
	_ = os.RemoveAll(w.dir.Name())
	_ = w.dir.Close()
}

func (w *workspace) abandon() { _ = w.dir.Close() }

// flock takes an exclusive lock without waiting.
func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFolder waits for the exclusive lock of an open folder. A file system without locks can't hold an SQLite file in use either.
func lockFolder(ctx context.Context, dir *os.File) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for errors.Is(flock(dir), unix.EWOULDBLOCK) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// sweep removes the workspaces of dead writers, and objects that they had moved into place without committing them.
// What can't be removed stays for a later sweep: a write must not fail for it.
func (s *Store) sweep(ctx context.Context) {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() && filepath.Ext(e.Name()) == workSuffix {
			s.sweepOne(ctx, s.path("tmp", e.Name()))
		}
	}
}

func (s *Store) sweepOne(ctx context.Context, path string) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	w := &workspace{dir: dir}
	if flock(dir) != nil {
		w.abandon()
		return
	}
	lines, err := os.ReadFile(w.path(publishName))
	if err == nil {
		var ds []ref.Digest
		for h := range strings.FieldsSeq(string(lines)) {
			if d := ref.Digest("sha256:" + h); d.Valid() { // the last line may be cut
				ds = append(ds, d)
			}
		}
		err = s.unpublish(ctx, ds)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.abandon()
		return
	}
	w.remove()
}

// unpublish removes the files of those objects that no row names. Rows and removals both hold the write lock, and a commit
// looks for its files under that lock, so no committed object can lose its file here.
func (s *Store) unpublish(ctx context.Context, ds []ref.Digest) error {
	if len(ds) == 0 {
		return nil
	}
	return s.write(ctx, relaxed, func(c *conn) error {
		for _, d := range ds {
			if _, ok, err := c.object(ctx, d); err != nil {
				return err
			} else if !ok {
				if err := os.Remove(s.objectPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		return nil
	})
}

// settled tells whether everything that was committed is in store.db itself, with no log beside it.
func settled(file string) bool {
	fi, err := os.Lstat(file + "-wal")
	return errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() == 0
}
