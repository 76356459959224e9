//go:build !linux

package bundle

import (
	"os"

	"golang.org/x/sys/unix"
)

func (f *folder) init() error { return nil }

func (f *folder) openBeneath(name string, flags int) (*os.File, error) {
	return f.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|flags, 0)
}
