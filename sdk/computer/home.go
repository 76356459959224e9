package computer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// homeFiles writes into a home on this machine.
type homeFiles struct{ home string }

// WriteFiles writes files one after another, each whole or not at all. What was written before one that fails stays.
func (h *homeFiles) WriteFiles(ctx context.Context, files []File) error {
	home, err := filepath.EvalSymlinks(h.home)
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	defer root.Close()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeFile(root, home, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, plain(err))
		}
	}
	return nil
}

// plain drops the paths of this machine from an error of a file.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

// writeFile writes one file. Links are followed here; the root then sees a path without any, and refuses one that was put there in between.
func writeFile(root *os.Root, home string, f File) error {
	dir, err := parentOf(home, f.Path)
	if err != nil {
		return err
	}
	name := path.Join(dir, path.Base(f.Path))
	if err := replaceable(home, name); err != nil {
		return err
	}
	if dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := path.Join(dir, ".agentenv-"+rand.Text())
	w, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(f.Data)
	err = cmp.Or(err, w.Close())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, plain(root.Remove(temp)))
	}
	return nil
}

// parentOf is the folder that a path's file goes to, relative to the home, links resolved. What isn't there yet is made later.
func parentOf(home, p string) (string, error) {
	segments := strings.Split(path.Dir(p), "/")
	if path.Dir(p) == "." {
		return ".", nil
	}
	at := home
	for i, s := range segments {
		next := filepath.Join(at, s)
		_, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			rel, err := filepath.Rel(home, at)
			return path.Join(append([]string{filepath.ToSlash(rel)}, segments[i:]...)...), err
		}
		if err != nil {
			return "", err
		}
		if at, err = filepath.EvalSymlinks(next); err != nil {
			return "", err
		}
		if !inside(home, at) {
			return "", errors.New("it leads out of the home by a link")
		}
	}
	rel, err := filepath.Rel(home, at)
	return filepath.ToSlash(rel), err
}

// replaceable refuses a place that a file can't be put at.
func replaceable(home, name string) error {
	full := filepath.Join(home, filepath.FromSlash(name))
	st, err := os.Lstat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return errors.New("a file is where a folder is needed")
	case err != nil:
		return err
	case st.IsDir():
		return errors.New("a folder has that name")
	case st.Mode()&fs.ModeSymlink == 0:
		return nil
	}
	target, err := os.Readlink(full)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(full), target)
	}
	if resolved, err := filepath.EvalSymlinks(full); err == nil {
		target = resolved
		if st, err := os.Stat(full); err == nil && st.IsDir() {
			return errors.New("a folder has that name")
		}
	}
	if !inside(home, target) {
		return errors.New("it leads out of the home by a link")
	}
	return nil
}

func inside(home, p string) bool {
	rel, err := filepath.Rel(home, p)
	return err == nil && filepath.IsLocal(rel)
}

// exportFiles tells put each regular file of the home under the paths, sorted within each, once. Links to files inside the home are files; linked
// folders are followed only where a path names one. What lies in one of leave, by its path or by where it really is, is left out.
func exportFiles(home string, paths, leave []string, put func(p, media string, f io.ReadSeeker) error) error {
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
	put   func(p, media string, f io.ReadSeeker) error
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
	return slices.ContainsFunc(x.leave, func(l string) bool { return below(p, l) })
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
