package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// reserve takes the name and makes the folder that the workspace is made in, beside its place.
func (m *Maker) reserve(o Order) (entry, error) {
	have, err := m.Registry.read(m.Registry.file(o.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return entry{}, err
	case have.Staging != "": // of a dead process: the lock is ours
		if have.placed() {
			return entry{}, errors.Join(taken(o.Name, have.Root), m.Registry.finish(o.Name, have))
		}
		if err := m.Registry.undo(o.Name, have); err != nil {
			return entry{}, err
		}
	default:
		return entry{}, taken(o.Name, have.Root)
	}
	fi, err := os.Stat(o.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return entry{}, err
	case !fi.IsDir():
		return entry{}, fmt.Errorf("%s is there already and is no folder", o.Root)
	}
	if _, err := os.Lstat(filepath.Join(o.Root, folder.Dir)); err == nil {
		return entry{}, fmt.Errorf("%s has a folder %s already: it is a workspace", o.Root, folder.Dir)
	}
	parent := filepath.Dir(o.Root)
	if fi, err := os.Stat(parent); err != nil || !fi.IsDir() {
		return entry{}, fmt.Errorf("%s is no folder, so that no workspace can be made in it", parent)
	}
	e := entry{Root: o.Root, Staging: filepath.Join(parent, stagingPrefix+o.Name+"-"+strings.ToLower(rand.Text()[:8]))}
	if err := m.Registry.write(o.Name, e); err != nil {
		return entry{}, err
	}
	if err := os.MkdirAll(filepath.Join(e.Staging, folder.Dir), 0o755); err != nil {
		return entry{}, errors.Join(err, m.Registry.undo(o.Name, e))
	}
	return e, nil
}

// stands tells whether a folder holds a workspace that was created.
func stands(root string) bool {
	w, err := At(root)
	return err == nil && !w.Created.IsZero()
}

func taken(name, root string) error {
	return fmt.Errorf("there is a workspace %s already, in %s; choose another name, or remove it with agent-env workspace remove %s", name, root, name)
}

// place puts a finished workspace where it belongs, by one rename: of its whole folder, or of .agentenv into one that is there. back takes it
// away again.
func place(staging, root string) (back func() error, err error) {
	from, to, remove := staging, root, os.Remove
	if _, err := os.Lstat(root); err == nil {
		from, to = filepath.Join(staging, folder.Dir), filepath.Join(root, folder.Dir)
		remove = func(string) error { return nil }
	}
	if err := os.Rename(from, to); err != nil {
		return nil, fmt.Errorf("put the workspace in place: %w", err)
	}
	back = func() error { return errors.Join(os.RemoveAll(filepath.Join(root, folder.Dir)), remove(root)) }
	if err := errors.Join(atomicfile.SyncDir(root), atomicfile.SyncDir(filepath.Dir(root))); err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// whileLooked is longer than a list of workspaces holds a lock to see whose it is.
const whileLooked = 2 * time.Second

// hold takes a workspace's lock; atomicfile.ErrLocked where another command works on it, and not only looks.
func hold(ctx context.Context, path string) (*atomicfile.Lock, error) {
	end := time.Now().Add(whileLooked)
	lock, err := atomicfile.NewLockUnless(ctx, path, func() bool { return time.Now().After(end) })
	if lock == nil && err == nil {
		return nil, atomicfile.ErrLocked
	}
	return lock, err
}
