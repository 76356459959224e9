package subprocess

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tie has a command that is not started yet die with the thread that starts it, which the caller keeps, and so with this program, however that ends.
func Tie(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGKILL }

// Wait is cmd.Wait for a command with a group of its own: it ends what the command left there while the group's id is still its own.
func Wait(cmd *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	_ = signal(cmd, syscall.SIGKILL) // nothing may be left
	return cmd.Wait()
}
