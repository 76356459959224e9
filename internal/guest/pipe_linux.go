package guest

import (
	"os"
	"syscall"
)

const fGetPipeSize = 1032 // F_GETPIPE_SZ, which package syscall lacks

func pipeSize(f *os.File) int {
	size := 64 << 10
	raw, err := f.SyscallConn()
	if err != nil {
		return size
	}
	_ = raw.Control(func(fd uintptr) {
		if n, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fGetPipeSize, 0); e == 0 {
			size = int(n)
		}
	})
	return size
}
