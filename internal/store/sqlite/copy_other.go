//go:build !linux

package sqlite

import "os"

func reflink(dst, src *os.File) (int64, bool) { return 0, false }

func copyRange(dst, src *os.File, n int) (int64, bool, error) { return 0, false, nil }

func startWriteback(f *os.File, off, n int64) {}
