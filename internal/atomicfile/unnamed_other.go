//go:build !linux

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

func newUnnamed(string, fs.FileMode) (*temp, error) { return nil, errors.ErrUnsupported }

func linkUnnamed(*os.File, string) error { return errors.ErrUnsupported }
