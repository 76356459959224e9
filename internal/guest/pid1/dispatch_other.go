//go:build !linux

package pid1

// Dispatch returns: sandboxes of this kind need Linux.
func Dispatch() {}
