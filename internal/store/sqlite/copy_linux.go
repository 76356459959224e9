package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// reflink lets dst share all of src's blocks, where the file system can.
func reflink(dst, src *os.File) (int64, bool) {
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) != nil {
		return 0, false
	}
	n, err := dst.Seek(0, io.SeekEnd)
	return n, err == nil && n > 0
}

// copyRange copies up to n bytes inside the kernel; ok is false when these two files can't, and nothing is copied then.
func copyRange(dst, src *os.File, n int) (copied int64, ok bool, err error) {
	for {
		c, err := unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, n, 0)
		switch {
		case err == nil && c == 0:
			// The end, or a file system that answers 0 for what it can't do: an ordinary read tells.
			return 0, false, nil
		case err == nil:
			return int64(c), true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
			return 0, true, &os.PathError{Op: "write", Path: dst.Name(), Err: err}
		default:
			return 0, false, nil
		}
	}
}

// startWriteback asks for these bytes to go to the disk now, so that little is left for the sync.
func startWriteback(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
