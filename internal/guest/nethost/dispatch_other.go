//go:build !linux

package nethost

// Dispatch returns: networks of this kind need Linux.
func Dispatch() {}
