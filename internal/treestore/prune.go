package treestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// meta is what entry.json holds.
type meta struct {
	Key     string    `json:"key"`
	Bytes   int64     `json:"bytes"`
	Files   int       `json:"files"`
	Created time.Time `json:"created"`
}

// Entry describes a tree.
type Entry struct {
	Key      string    `json:"key"` // "" for a damaged entry
	Path     string    `json:"path"`
	Bytes    int64     `json:"bytes"` // of its files, as built
	Files    int       `json:"files"`
	Created  time.Time `json:"created"`
	LastUsed time.Time `json:"last_used"`
	InUse    bool      `json:"in_use"`
	name     string
}

// List is every tree, by key. One bad entry never spoils it; a store that doesn't exist is empty.
func (s *Store) List(ctx context.Context) ([]Entry, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e := s.entry(name)
		lock, err := atomicfile.TryLock(s.lockPath(name))
		if e.InUse = errors.Is(err, atomicfile.ErrLocked); err == nil {
			if err := lock.Unlock(); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Key+a.name, b.Key+b.name) })
	return out, nil
}

// names are the folders of the store that hold trees.
func (s *Store) names() ([]string, error) {
	es, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the store of trees: %w", err)
	}
	var out []string
	for _, e := range es {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func (s *Store) entry(name string) Entry {
	e := Entry{Path: s.treePath(name), name: name}
	var m meta
	if b, err := os.ReadFile(filepath.Join(s.dir, name, metaFile)); err == nil && json.Unmarshal(b, &m) == nil {
		e.Key, e.Bytes, e.Files, e.Created = m.Key, m.Bytes, m.Files, m.Created
	}
	e.LastUsed = e.Created
	if fi, err := os.Stat(s.lockPath(name)); err == nil {
		e.LastUsed = fi.ModTime()
	}
	return e
}

// Pruned is what Prune did.
type Pruned struct {
	Removed []Entry `json:"removed"`
	Busy    []Entry `json:"busy"`  // would have gone, but are in use
	Swept   int     `json:"swept"` // folders that dead builders had left
}

// Prune removes every tree that keep doesn't want and nobody holds, and what dead builders left. It goes on after a failure, and joins all of them.
func (s *Store) Prune(ctx context.Context, keep func(Entry) bool) (Pruned, error) {
	out := Pruned{Removed: []Entry{}, Busy: []Entry{}}
	names, err := s.names()
	if err != nil {
		return out, err
	}
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		if e := s.entry(name); !keep(e) {
			removed, err := s.remove(name)
			switch {
			case errors.Is(err, atomicfile.ErrLocked):
				e.InUse = true
				out.Busy = append(out.Busy, e)
			case err != nil:
				errs = append(errs, fmt.Errorf("remove the tree %s: %w", e.Path, err))
			case removed:
				out.Removed = append(out.Removed, e)
			}
		}
	}
	swept, err := s.Sweep(ctx)
	out.Swept = swept
	return out, errors.Join(append(errs, err, ctx.Err())...)
}

// Remove removes the tree of a key; it is nil when there is none, and ErrInUse while somebody holds it.
func (s *Store) Remove(key string) error {
	name := nameOf(key)
	if _, err := os.Lstat(filepath.Join(s.dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := s.remove(name)
	if errors.Is(err, atomicfile.ErrLocked) {
		return fmt.Errorf("%s: %w", s.treePath(name), ErrInUse)
	}
	return err
}

// remove removes a tree that nobody holds, and its lock; removed is false when another process was faster.
func (s *Store) remove(name string) (removed bool, err error) {
	for _, d := range []string{locksDir, tempDir} {
		if err := atomicfile.MkdirAll(filepath.Join(s.dir, d)); err != nil {
			return false, err
		}
	}
	lock, err := atomicfile.TryLock(s.lockPath(name))
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(filepath.Join(s.dir, name))
	removed = err == nil
	err = errors.Join(s.sweep(name), s.discard(name))
	return removed && err == nil, errors.Join(err, lock.Remove())
}

// Sweep removes what dead builders of any key left, and tells how many folders those were.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	es, err := os.ReadDir(filepath.Join(s.dir, tempDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, e := range es {
		name, _, ok := strings.Cut(e.Name(), tempMark)
		if !ok || ctx.Err() != nil {
			continue
		}
		lock, err := atomicfile.TryLock(s.lockPath(name))
		if errors.Is(err, atomicfile.ErrLocked) {
			continue // its builder lives
		}
		if err == nil {
			err = s.removeAll(filepath.Join(s.dir, tempDir, e.Name()))
			if err == nil {
				n++
			}
			if _, lerr := os.Lstat(filepath.Join(s.dir, name)); errors.Is(lerr, fs.ErrNotExist) {
				err = errors.Join(err, lock.Remove())
			} else {
				err = errors.Join(err, lock.Unlock())
			}
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}
