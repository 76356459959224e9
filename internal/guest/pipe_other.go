//go:build unix && !linux

package guest

import (
	"os"
	"syscall"
)

// rawPipe is a pipe whose end near (0: the read end) is this program's and doesn't block, as the other end does.
func rawPipe(near int) (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(fds[:]); err != nil {
		return fds, os.NewSyscallError("pipe", err)
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	if err := syscall.SetNonblock(fds[near], true); err != nil {
		closeRaw(fds[0])
		closeRaw(fds[1])
		return fds, os.NewSyscallError("fcntl", err)
	}
	return fds, nil
}

// pipeSize is what a pipe holds, in bytes.
func pipeSize(int) int { return 64 << 10 }

func openable(*os.File) {}
