package guest

import (
	"os"
	"syscall"
)

const (
	fGetPipeSize = 1032       // F_GETPIPE_SZ, which package syscall lacks
	pipefs       = 0x50495045 // the file system of pipes without a name
)

// halfPipe is a pipe whose end near (0: the read end) is this program's, and whose other end blocks. It is os.Pipe with less to do: the
// end that is handed on is never made non-blocking, nor put into the poller.
func halfPipe(near int) (r, w *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if err := syscall.SetNonblock(fds[near], true); err != nil {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
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
