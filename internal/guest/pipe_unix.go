//go:build unix

package guest

import (
	"errors"
	"os"
	"syscall"
)

// pipe is a pipe to read from: r doesn't block, and w does, since programs don't expect EAGAIN.
func pipe() (r int, w *os.File, err error) {
	fds, err := rawPipe(0)
	if err != nil {
		return -1, nil, err
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "|1"), nil
}

// feedPipe is os.Pipe with a blocking read end.
func feedPipe() (r, w *os.File, err error) {
	fds, err := rawPipe(1)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// readNow reads without waiting: 0 at the end, less where nothing is there now.
func readNow(fd int, p []byte) int {
	for {
		n, err := syscall.Read(fd, p)
		if !errors.Is(err, syscall.EINTR) {
			return n
		}
	}
}

func closeRaw(fd int) { _ = syscall.Close(fd) }
