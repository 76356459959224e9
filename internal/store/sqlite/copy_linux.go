package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reflink lets dst share all of src's blocks, where the file system can.
func reflink(dst, src *os.File) bool {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// preallocate makes room for size bytes from off on, where the file system can: a full disk shows before anything is copied, and
// writing takes half the time.
func preallocate(f *os.File, off, size int64) error {
	if size == 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), 0, off, size)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	return nil
}

// startWriteback asks for these bytes to go to the disk now.
func startWriteback(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
