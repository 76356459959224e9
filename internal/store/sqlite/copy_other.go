//go:build !linux

package sqlite

import "os"

func reflink(dst, src *os.File) bool { return false }

func preallocate(f *os.File, off, size int64) error { return nil }

func startWriteback(f *os.File, off, n int64) {}
