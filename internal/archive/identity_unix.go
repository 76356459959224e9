//go:build unix

package archive

import (
	"io/fs"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// several is a file's identity; ok only when it has more than one name.
func several(fi fs.FileInfo) (identity, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return identity{}, false
	}
	return identity{uint64(st.Dev), st.Ino}, true //nolint:unconvert // Dev is 32 bits wide on some systems
}
