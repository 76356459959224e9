//go:build !linux

package subprocess

import (
	"os/exec"
	"syscall"
)

// Tie does nothing: here a command outlives the program that started it.
func Tie(*exec.Cmd) {}

// Wait is cmd.Wait for a command with a group of its own: it ends what the command left there.
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = signal(cmd, syscall.SIGKILL) // nothing may be left
	return err
}
