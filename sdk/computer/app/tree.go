package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"syscall"
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
		return t.copyFile(ctx, from, to)
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

func (t tree) copyFile(ctx context.Context, from, to string) error {
	in, err := t.root.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that came in its place doesn't block
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	st, err := in.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	out, err := t.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyContent(ctx, out, in, st.Size())
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return t.like(to, st)
}

// chunk is how many bytes are copied between looks at whether the time is over.
const chunk = 64 << 20

// copyContent copies what a file of a size holds. Holes stay holes, so that a file that only says that it is huge takes no room.
func copyContent(ctx context.Context, out, in *os.File, size int64) error {
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, end := extent(in, at, size)
		if start >= size {
			break
		}
		end = min(end, start+chunk)
		if _, err := in.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(start, io.SeekStart); err != nil {
			return err
		}
		switch _, err := io.CopyN(out, in, end-start); {
		case errors.Is(err, io.EOF):
			return nil // somebody has made it shorter
		case err != nil:
			return err
		}
		at = end
	}
	return out.Truncate(size)
}

// extent is the next piece of a file, from an offset on, that is no hole; a file system that knows of none has one piece.
func extent(f *os.File, at, size int64) (start, end int64) {
	const seekData, seekHole = 3, 4
	if runtime.GOOS != "linux" {
		return at, size
	}
	start, err := f.Seek(at, seekData)
	if errors.Is(err, syscall.ENXIO) {
		return size, size // nothing but a hole is left
	}
	if err != nil {
		return at, size
	}
	if end, err = f.Seek(start, seekHole); err != nil {
		return start, size
	}
	return start, min(end, size)
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
