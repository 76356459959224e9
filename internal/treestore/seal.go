package treestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// amount is what a tree holds.
type amount struct {
	bytes int64
	files int
}

// manyFiles is from how many files on one sync of the file system is cheaper than one of each file.
const manyFiles = 2000

// seal measures a tree, takes the right to write away if asked, and makes it durable unless it need not be.
func seal(tree string, o Options) (amount, error) {
	var total amount
	var files, dirs []string
	closed := false // a folder is another user's
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && o.Remove != nil && path != tree {
			closed = true
			return nil
		}
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case fi.IsDir():
			dirs = append(dirs, path)
			return nil
		case fi.Mode().IsRegular():
			files = append(files, path)
			total.bytes += fi.Size()
		}
		total.files++
		if o.ReadOnly && fi.Mode().IsRegular() && fi.Mode().Perm()&0o222 != 0 {
			return os.Chmod(path, fi.Mode()&^0o222)
		}
		return nil
	})
	if err != nil {
		return amount{}, err
	}
	if o.ReadOnly {
		for i := len(dirs) - 1; i >= 0; i-- { // inner ones first
			fi, err := os.Lstat(dirs[i])
			if err != nil {
				return amount{}, err
			}
			if err := os.Chmod(dirs[i], fi.Mode()&^0o222); err != nil {
				return amount{}, err
			}
		}
	}
	if o.Volatile {
		return total, nil
	}
	if closed {
		return total, syncFileSystem(tree)
	}
	return total, syncAll(tree, files, dirs)
}

// syncAll syncs each file and folder, or, where they are many or may not be opened, the file system.
func syncAll(tree string, files, dirs []string) error {
	if len(files)+len(dirs) > manyFiles {
		return syncFileSystem(tree)
	}
	var closed sync.Once
	unreadable := false
	var g errgroup.Group
	g.SetLimit(8)
	for _, path := range files {
		g.Go(func() error {
			err := syncFile(path)
			if errors.Is(err, fs.ErrPermission) {
				closed.Do(func() { unreadable = true })
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0 && !unreadable; i-- {
		err := atomicfile.SyncDir(dirs[i])
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		unreadable = err != nil
	}
	if unreadable {
		return syncFileSystem(tree)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeAll removes a folder of the store.
func (s *Store) removeAll(path string) error {
	err := removeAll(path)
	if errors.Is(err, fs.ErrPermission) && s.o.Remove != nil {
		return s.o.Remove(path)
	}
	return err
}

// removeAll removes a tree, also one whose folders may not be written to.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d == nil || !d.IsDir() {
			return nil
		}
		return os.Chmod(p, 0o700)
	})
	return errors.Join(err, os.RemoveAll(path))
}
