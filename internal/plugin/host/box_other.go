//go:build !linux

package host

import "syscall"

// reopen can't be done here: copies of pipes share their mode.
func reopen(uintptr, bool) (int, error) { return -1, syscall.ENOTSUP }
