//go:build unix && !linux

package git

import (
	"os/exec"
	"syscall"
)

// ownGroup starts a command in a process group of its own, and ends the whole group where it would end the command.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
