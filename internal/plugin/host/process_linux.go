package host

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// wait waits for a process, ends what it left in its group while the group's id is still its own, and says how it ended.
func wait(cmd *exec.Cmd) string {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	kill(cmd)
	return ended(cmd.Wait())
}
