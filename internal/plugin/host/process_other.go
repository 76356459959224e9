//go:build !linux

package host

import "os/exec"

// wait waits for a process and says how it ended.
func wait(cmd *exec.Cmd) string { return ended(cmd.Wait()) }
