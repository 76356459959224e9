package bundle

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folder is a folder of this machine as a file system. Names are as fs.FS has them. Open follows no link (the tree resolves links itself, so that
// none leads out), doesn't block on a FIFO, and its files are *os.File.
type folder struct {
	dir  string
	root *os.Root
	fd   *os.File // the folder itself, where one call can open a path safely
}

func openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, root: root}
	if err := f.init(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return f, nil
}

// Close ends the use of the folder.
func (f *folder) Close() error {
	if f.fd != nil {
		_ = f.fd.Close()
	}
	return f.root.Close()
}

// Open opens a file or folder for reading.
func (f *folder) Open(name string) (fs.File, error) { return f.open(name) }

func (f *folder) open(name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return f.openBeneath(name, 0)
}

// ReadDir lists a folder, sorted by name.
func (f *folder) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if list, told, err := f.list(name); told {
		return sorted(list, err)
	}
	d, err := f.openBeneath(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return sorted(d.ReadDir(-1))
}

// readTo reads a file whole, through buf, and writes it to w.
func (f *folder) readTo(name string, w io.Writer, buf []byte) (int64, error) {
	if n, told, err := f.readRaw(name, w, buf); told {
		return n, err
	}
	r, err := f.open(name)
	if err != nil {
		return 0, err
	}
	if info, err := r.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = r.Close()
		return 0, cmp.Or(err, errSpecial)
	}
	return readTo(r, w, buf)
}

// Lstat describes a file without following a link.
func (f *folder) Lstat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrInvalid}
	}
	return os.Lstat(f.path(name))
}

// ReadLink is what a link says.
func (f *folder) ReadLink(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return os.Readlink(f.path(name))
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }
