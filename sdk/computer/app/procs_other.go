//go:build !linux

package app

import (
	"errors"
	"syscall"
)

// started isn't known here.
func started(int) (uint64, error) {
	return 0, errors.New("when processes began isn't known on this system")
}

// members are the groups in which something of the launch runs: here, its own.
func (l *launched) members() []int {
	if err := syscall.Kill(-l.Group, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return nil
	}
	return []int{l.Group}
}
