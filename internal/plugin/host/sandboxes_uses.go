package host

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// uses is a folder that notes which sandboxes of a provider there may be: a file for each, and one for each that is being made.
type uses struct{ dir string }

// Marks of files of sandboxes that are being made.
const (
	makingMark = "making~" // no id has a ~
	makingLife = 24 * time.Hour
)

// any tells whether there may be a sandbox.
func (u uses) any() bool {
	if u.dir == "" {
		return true
	}
	entries, err := os.ReadDir(u.dir)
	return err == nil && len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// use is a note on a sandbox that is being made.
type use struct {
	u    uses
	path string
}

// begin notes that a sandbox is being made.
func (u uses) begin() (use, error) {
	if u.dir == "" {
		return use{u: u}, nil
	}
	if err := atomicfile.MkdirAll(u.dir); err != nil {
		return use{}, err
	}
	path := filepath.Join(u.dir, makingMark+strings.ToLower(rand.Text()[:16]))
	return use{u, path}, atomicfile.WriteBytes(path, 0o600, nil)
}

// keep notes the sandbox that was made.
func (n use) keep(id string) error {
	if n.path == "" {
		return nil
	}
	if err := atomicfile.WriteBytes(filepath.Join(n.u.dir, id), 0o600, nil); err != nil {
		return err
	}
	return n.drop()
}

// drop takes the note away: nothing was made.
func (n use) drop() error {
	if n.path == "" {
		return nil
	}
	return remove(n.path)
}

// forget takes the note on a sandbox away.
func (u uses) forget(id string) error {
	if u.dir == "" {
		return nil
	}
	return remove(filepath.Join(u.dir, id))
}

// only forgets all sandboxes but the known ones, and makings that were given up.
func (u uses) only(known map[string]bool) error {
	if u.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(u.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), makingMark) {
			if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < makingLife {
				continue
			}
		} else if known[e.Name()] {
			continue
		}
		errs = append(errs, remove(filepath.Join(u.dir, e.Name())))
	}
	return errors.Join(errs...)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
