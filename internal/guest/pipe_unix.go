//go:build unix

package guest

import (
	"os"
	"syscall"
)

// pipe is os.Pipe with a blocking write end: programs don't expect EAGAIN. size is what it holds.
func pipe() (r, w *os.File, size int, err error) {
	r, w, err = halfPipe(0)
	if err != nil {
		return nil, nil, 0, err
	}
	return r, w, pipeSize(r), nil
}

// feedPipe is os.Pipe with a blocking read end.
func feedPipe() (r, w *os.File, err error) { return halfPipe(1) }

// readNow reads without waiting; 0 or less: nothing there, or the end.
func readNow(fd uintptr, p []byte) int {
	for {
		n, err := syscall.Read(int(fd), p)
		if err != syscall.EINTR {
			return n
		}
	}
}
