package atomicfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newUnnamed opens a file in the folder of path that has no name yet, so that nothing is left when its writer is killed.
// Not every file system can.
func newUnnamed(path string, mode fs.FileMode) (*temp, error) {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if _, err := os.Stat(procPath(f)); err != nil { // without /proc the file could never be named
		f.Close()
		return nil, err
	}
	return &temp{f: f}, nil
}

// linkUnnamed names f; it fails with fs.ErrExist when path exists.
func linkUnnamed(f *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, procPath(f), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
