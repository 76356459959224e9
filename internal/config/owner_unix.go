//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// ownerOf is the user id that a file belongs to.
func ownerOf(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
