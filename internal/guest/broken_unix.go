//go:build unix

package guest

import (
	"errors"
	"os"
	"syscall"
)

func isBroken(err error) bool {
	for _, e := range []error{syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ENOENT, os.ErrDeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
