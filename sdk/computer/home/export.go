package home

import (
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"agentenv.internal/agentenv/sdk/wire"
)

// Export tells put each regular file of the home under the paths, sorted within each, once. Links to files inside the home are files; linked
// folders are followed only where a path names one. What lies in one of leave, by its path or by where it really is, is left out. A file with a name that
// can't be said to others, and so not be loaded again, is an error.
func Export(home string, paths, leave []string, put func(p, media string, f *os.File) error) error {
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	x := &export{home: home, leave: leave, seen: map[string]bool{}, put: put}
	for _, l := range leave {
		if real, err := filepath.EvalSymlinks(filepath.Join(home, filepath.FromSlash(l))); err == nil {
			if rel, err := filepath.Rel(home, real); err == nil && filepath.IsLocal(rel) {
				x.leave = append(x.leave, filepath.ToSlash(rel))
			}
		}
	}
	for _, p := range paths {
		st, err := os.Stat(filepath.Join(home, filepath.FromSlash(p)))
		if err != nil {
			continue // nothing there
		}
		var found []string
		if st.IsDir() {
			found = x.walk(p)
		} else {
			found = []string{p}
		}
		for _, f := range found {
			if err := x.one(f); err != nil {
				return err
			}
		}
	}
	return nil
}

type export struct {
	home  string
	leave []string
	seen  map[string]bool
	put   func(p, media string, f *os.File) error
}

// walk is the files below a folder, by their paths relative to the home, sorted.
func (x *export) walk(p string) []string {
	real, err := filepath.EvalSymlinks(filepath.Join(x.home, filepath.FromSlash(p)))
	if err != nil || !inside(x.home, real) {
		return nil
	}
	var out []string
	// A folder that can't be read has no files that could be answered.
	_ = filepath.WalkDir(real, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, err := filepath.Rel(real, at)
		if err != nil {
			return err
		}
		name := path.Join(p, filepath.ToSlash(rel))
		if d.IsDir() {
			if x.left(name) {
				return fs.SkipDir
			}
			return nil
		}
		out = append(out, name)
		return nil
	})
	slices.Sort(out)
	return out
}

func (x *export) left(p string) bool {
	return slices.ContainsFunc(x.leave, func(l string) bool { return wire.Below(p, l) })
}

// one answers a file; what isn't a regular file inside the home is skipped.
func (x *export) one(p string) error {
	if x.seen[p] || x.left(p) {
		return nil
	}
	x.seen[p] = true
	real, err := filepath.EvalSymlinks(filepath.Join(x.home, filepath.FromSlash(p)))
	if err != nil || !inside(x.home, real) {
		return nil
	}
	rel, err := filepath.Rel(x.home, real)
	if err != nil || x.left(filepath.ToSlash(rel)) {
		return nil
	}
	root, err := os.OpenRoot(x.home)
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	defer root.Close()
	if st, err := root.Lstat(rel); err != nil || !st.Mode().IsRegular() {
		return nil // opening a socket fails, and a device may do anything
	}
	if err := sayable(p); err != nil {
		return fmt.Errorf("%q: %w: give the file another name", p, err)
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe doesn't block
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed in between
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p, plain(err))
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	media, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(p)))
	if err != nil {
		media = "application/octet-stream"
	}
	return x.put(p, media, f)
}

// sayable tells what is wrong with a path that comes from a folder.
func sayable(p string) error {
	if !utf8.ValidString(p) {
		return errors.New("its name is no UTF-8")
	}
	return wire.CheckPath(p)
}
