package dist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/treestore"
)

// Drop removes a whole environment, and tells whether there was one. A generation that somebody uses stays until nobody does: no process loses its
// files. ErrBusy while it is being changed.
func Drop(ctx context.Context, dir string) (dropped bool, err error) {
	if _, err := os.Lstat(filepath.Join(dir, lockFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	lock, err := atomicfile.TryLock(filepath.Join(dir, lockFile))
	if errors.Is(err, atomicfile.ErrLocked) {
		return false, ErrBusy
	}
	if err != nil {
		return false, fmt.Errorf("lock the plugin environment: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := os.Remove(filepath.Join(dir, currentFile)); err == nil {
		dropped = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	pruned, err := generations(dir).Prune(ctx, func(treestore.Entry) bool { return false })
	if err != nil || len(pruned.Busy) > 0 {
		return dropped, err
	}
	return dropped, os.RemoveAll(dir)
}
