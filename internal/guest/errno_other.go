//go:build unix && !linux

package guest

import (
	"errors"
	"fmt"
	"syscall"
)

// hostErrno turns a number of Linux into the host's error, for those that callers branch on.
func hostErrno(n int) error {
	known := map[int]error{
		1: syscall.EPERM, 2: syscall.ENOENT, 5: syscall.EIO, 7: syscall.E2BIG, 13: syscall.EACCES, 17: syscall.EEXIST, 20: syscall.ENOTDIR,
		21: syscall.EISDIR, 22: syscall.EINVAL, 28: syscall.ENOSPC, 30: syscall.EROFS, 36: syscall.ENAMETOOLONG, 39: syscall.ENOTEMPTY,
		40: syscall.ELOOP, 98: syscall.EADDRINUSE, 99: syscall.EADDRNOTAVAIL, 101: syscall.ENETUNREACH, 110: syscall.ETIMEDOUT,
		111: syscall.ECONNREFUSED, 113: syscall.EHOSTUNREACH,
	}
	if err := known[n]; err != nil {
		return err
	}
	return errors.New(fmt.Sprintf("error %d of the sandbox's system", n))
}
