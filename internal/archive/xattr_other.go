//go:build !linux

package archive

import "os"

func setXattr(*os.File, xattr) error { return nil }

func xattrs(*os.File) ([]xattr, error) { return nil, nil }
