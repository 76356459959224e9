//go:build !linux

package archive

import (
	"errors"
	"os"
)

// mknodAt: layers are unpacked for Linux alone.
func mknodAt(*os.File, string, uint32) error { return errors.ErrUnsupported }

func markOpaque(*os.File) error { return errors.ErrUnsupported }
