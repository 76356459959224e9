package git

import (
	"os/exec"
	"syscall"
)

// ownGroup starts a command in a process group of its own, and ends the whole group where it would end the command. When this process dies
// the command does too; the caller keeps its thread.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
