package bundle

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func (f *folder) init() error {
	fd, err := unix.Open(f.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: f.dir, Err: err}
	}
	f.fd = os.NewFile(uintptr(fd), f.dir)
	return nil
}

// openBeneath opens in one call what os.Root opens segment by segment: twice as fast over a folder of thousands of small files.
// A folder is not opened as non-blocking, which would cost a try to watch it.
func (f *folder) openBeneath(name string, flags int) (*os.File, error) {
	if flags&unix.O_DIRECTORY == 0 {
		flags |= unix.O_NONBLOCK
	}
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOCTTY | uint64(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(f.fd.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), f.path(name)), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, or a filter that doesn't know the call
			return f.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|flags, 0)
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}
