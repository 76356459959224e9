package pid1

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// awaitIDs waits until the process has ids in its namespace and starts over as PID 1. The start without ids has cost it its capabilities;
// executing itself as the namespace's root gives them back.
func awaitIDs() error {
	var b [1]byte
	for {
		n, err := unix.Read(guest.BirthFD, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for ids: %w", err)
		}
		if n == 0 {
			return errors.New("no ids came")
		}
		break
	}
	if uid := os.Getuid(); uid != 0 {
		return fmt.Errorf("the ids that came make this process user %d and not root", uid)
	}
	return fmt.Errorf("start over with ids: %w", unix.Exec("/proc/self/exe", []string{guest.Argv0}, os.Environ()))
}

// leaveGroups gives up the caller's groups, which are none of the box's. Where the box has a single id the kernel forbids that.
func leaveGroups() error {
	groups, err := unix.Getgroups()
	if err != nil || len(groups) == 0 {
		return err
	}
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && string(b) == "deny\n" {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave the caller's groups: %w", err)
	}
	return nil
}
