package guest

import (
	"os"
	"syscall"
)

const (
	fGetPipeSize = 1032       // F_GETPIPE_SZ, which package syscall lacks
	pipefs       = 0x50495045 // the file system of pipes without a name
)

// rawPipe is a pipe whose end near (0: the read end) is this program's and doesn't block, as the other end does. It is os.Pipe with less to
// do: nothing is put into the poller, and the end that is handed on is never made non-blocking.
func rawPipe(near int) (fds [2]int, err error) {
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return fds, os.NewSyscallError("pipe2", err)
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fds[near]), syscall.F_SETFL, syscall.O_NONBLOCK); e != 0 {
		closeRaw(fds[0])
		closeRaw(fds[1])
		return fds, os.NewSyscallError("fcntl", e)
	}
	return fds, nil
}

// openable lets a command open f again, as /dev/stdin and /dev/stderr do: a pipe belongs to who made it, who may have no id in the box. It
// is for pipes without a name alone, which nobody reaches but through a process that has them; everything else stays as it is.
func openable(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		var fs syscall.Statfs_t
		if syscall.Fstatfs(int(fd), &fs) == nil && fs.Type == pipefs {
			_ = syscall.Fchmod(int(fd), 0o666) // somebody else's pipe keeps its mode
		}
	})
}

// pipeSize is what a pipe holds, in bytes.
func pipeSize(fd int) int {
	if n, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fGetPipeSize, 0); e == 0 {
		return int(n)
	}
	return 64 << 10
}
