package host

import (
	"strconv"
	"syscall"
)

// reopen opens a pipe anew, non-blocking.
func reopen(fd uintptr, write bool) (int, error) {
	mode := syscall.O_RDONLY
	if write {
		mode = syscall.O_WRONLY
	}
	return syscall.Open("/proc/self/fd/"+strconv.Itoa(int(fd)), mode|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
}
