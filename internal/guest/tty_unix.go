//go:build unix

package guest

import (
	"os"
	"syscall"
	"unsafe"
)

// Resize sets the size of a terminal, whose foreground processes are told.
func Resize(master *os.File, s Size) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	size := [4]uint16{s.Rows, s.Cols}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// pollable is f as a file whose reads and writes can be given a deadline. f is used up.
func pollable(f *os.File) *os.File {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return f
	}
	syscall.CloseOnExec(fd)
	if syscall.SetNonblock(fd, true) != nil {
		syscall.Close(fd)
		return f
	}
	f.Close()
	return os.NewFile(uintptr(fd), "terminal")
}
