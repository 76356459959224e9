package home

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"agentenv.internal/agentenv/sdk/wire"
)

// File is a file of the home.
type File struct {
	Path string // relative, with slashes
	Data []byte
}

// Places says where files may be written.
type Places struct {
	// Within are paths of the home that a file must lie below, as its path says and where its folder really is; nil: anywhere in the home.
	Within []string
	// Temp is a folder of the home in which files are made before they are put in their place; "" makes each beside its place.
	Temp string
}

// Check tells what is wrong with the places of files, before anything is written.
func Check(home string, files []File, w Places) error {
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	for _, f := range files {
		if _, err := w.place(home, f.Path); err != nil {
			return fmt.Errorf("%s: %w", f.Path, plain(err))
		}
	}
	return nil
}

// Write writes files one after another, each whole or not at all, mode 0600, with the folders that they need. What was written before one that fails
// stays. Nothing is written outside the home, whatever links there are.
func Write(ctx context.Context, home string, files []File, w Places) error {
	home, err := filepath.EvalSymlinks(home)
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
		if err := w.write(root, home, f); err != nil {
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

// write writes one file. Links are followed by place; the root then sees a path without any, and refuses one that was put there in between.
func (w Places) write(root *os.Root, home string, f File) error {
	name, err := w.place(home, f.Path)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	if dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	temp := cmp.Or(w.Temp, dir)
	err = put(root, temp, name, f.Data)
	if temp != dir && errors.Is(err, syscall.EXDEV) {
		err = put(root, dir, name, f.Data)
	}
	return err
}

// put writes a file in a folder and moves it to its place.
func put(root *os.Root, dir, name string, data []byte) error {
	temp := path.Join(dir, Private+"-"+rand.Text())
	w, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	err = cmp.Or(err, w.Close())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, plain(root.Remove(temp)))
	}
	return nil
}

// place is where a path's file goes, relative to the home, links of its folders resolved.
func (w Places) place(home, p string) (string, error) {
	if w.Within != nil && !w.holds(p) {
		return "", fmt.Errorf("it lies outside %s", strings.Join(w.Within, ", "))
	}
	dir, err := parentOf(home, p)
	if err != nil {
		return "", err
	}
	name := path.Join(dir, path.Base(p))
	if w.Within != nil && !w.holds(name) {
		return "", fmt.Errorf("it leads out of %s by a link", strings.Join(w.Within, ", "))
	}
	return name, replaceable(home, name)
}

func (w Places) holds(p string) bool {
	return slices.ContainsFunc(w.Within, func(dir string) bool { return wire.Below(p, dir) })
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
