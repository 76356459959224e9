package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// tree copies trees of a home.
type tree struct{ root *os.Root }

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// copy copies a file, link or folder with modes and times; links stay what they are, and what is none of the three is left out.
func (t tree) copy(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	st, err := t.root.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := t.root.Readlink(from)
		if err != nil {
			return err
		}
		return t.root.Symlink(target, to)
	case st.IsDir():
		return t.copyDir(ctx, from, to, st)
	case st.Mode().IsRegular():
		return t.copyFile(from, to, st)
	}
	return nil
}

func (t tree) copyDir(ctx context.Context, from, to string, st fs.FileInfo) error {
	entries, err := readDir(t.root, from)
	if err != nil {
		return err
	}
	if err := t.root.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.copy(ctx, path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return t.like(to, st)
}

func (t tree) copyFile(from, to string, st fs.FileInfo) error {
	in, err := t.root.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := t.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return t.like(to, st)
}

// like gives a copy the mode and time of what it is of.
func (t tree) like(to string, st fs.FileInfo) error {
	if err := t.root.Chmod(to, st.Mode()&modeBits); err != nil {
		return err
	}
	return t.root.Chtimes(to, st.ModTime(), st.ModTime())
}

func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	d, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	return d.ReadDir(-1)
}

// removeAll removes what is at a path, folders included that can't be written to.
func removeAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := open(root, name); err != nil {
		return err
	}
	return root.RemoveAll(name)
}

// open lets the owner into all folders at a path.
func open(root *os.Root, name string) error {
	st, err := root.Lstat(name)
	if err != nil || !st.IsDir() {
		return err
	}
	if err := root.Chmod(name, 0o700); err != nil {
		return err
	}
	entries, err := readDir(root, name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := open(root, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
