package guest

import "syscall"

func hostErrno(n int) error { return syscall.Errno(n) }
