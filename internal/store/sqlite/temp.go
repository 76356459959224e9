package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/ref"
)

// Suffixes of what lies in tmp/.
const (
	tempObject  = ".object"  // bytes on their way to objects/
	tempCreate  = ".create"  // the lock of a store.db being built beside it, as <name>.db
	tempPublish = ".publish" // lines of the objects that a commit is renaming into objects/
)

var errCantSync error = unix.EINVAL

// temp is a file in tmp/ that its writer keeps locked. The lock goes with the process, so that a sweep can tell who is dead.
type temp struct {
	*os.File
	moved bool // it has a name elsewhere
}

// newTemp makes a file that no sweep takes: one that was swept between its creation and its lock is given up for another.
func newTemp(dir, suffix string) (*temp, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	for {
		var b [12]byte
		_, _ = rand.Read(b[:]) // never fails
		f, err := os.OpenFile(filepath.Join(dir, hex.EncodeToString(b[:])+suffix), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
		if err != nil {
			return nil, err
		}
		t := &temp{File: f}
		err = flock(f)
		if errors.Is(err, unix.EWOULDBLOCK) {
			t.drop()
			continue
		}
		var st unix.Stat_t
		if serr := unix.Fstat(int(f.Fd()), &st); serr != nil {
			t.drop()
			return nil, serr
		}
		if st.Nlink == 0 {
			t.drop()
			continue
		}
		return t, nil // on a file system without locks, sweeps lock nothing and take nothing
	}
}

// drop closes the file and removes its temporary name.
func (t *temp) drop() {
	if !t.moved {
		_ = os.Remove(t.Name())
	}
	_ = t.Close()
}

// flock takes an exclusive lock without waiting.
func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFolder waits for the exclusive lock of an open folder. File systems without locks are left to the rename's own order.
func lockFolder(ctx context.Context, dir *os.File) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := flock(dir)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// sweep removes what dead writers left in tmp/, and objects that they had moved into place without committing them.
// What can't be removed stays for a later sweep: a write must not fail for it.
func (s *Store) sweep(ctx context.Context) {
	dir := s.path("tmp")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch filepath.Ext(name) {
		case tempObject, tempCreate, tempPublish:
			s.sweepOne(ctx, name, entries)
		}
	}
}

func (s *Store) sweepOne(ctx context.Context, name string, all []fs.DirEntry) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f) != nil {
		return
	}
	switch filepath.Ext(name) {
	case tempPublish:
		lines, err := os.ReadFile(name)
		if err != nil || s.unpublish(ctx, strings.Fields(string(lines))) != nil {
			return
		}
	case tempCreate:
		for _, e := range all {
			if strings.HasPrefix(e.Name(), filepath.Base(name)+".") {
				_ = os.Remove(filepath.Join(filepath.Dir(name), e.Name()))
			}
		}
	}
	_ = os.Remove(name)
}

// unpublish removes the files of those objects that no row names. Rows and removals both hold the write lock, and a commit
// looks for its files under that lock, so no committed object can lose its file here.
func (s *Store) unpublish(ctx context.Context, hexes []string) error {
	if len(hexes) == 0 {
		return nil
	}
	return s.write(ctx, relaxed, func(c *conn) error {
		for _, h := range hexes {
			d := ref.Digest("sha256:" + h)
			if !d.Valid() {
				continue
			}
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
