//go:build !linux

package host

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a process into a group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// tied does nothing: here a process outlives the one that started it.
func tied(*exec.Cmd) {}

// wait waits for a process and says how it ended.
func wait(cmd *exec.Cmd) string { return ended(cmd.Wait()) }
