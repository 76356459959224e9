//go:build !unix

package pyhost

import "os/exec"

// Where there are no process groups, nothing is done.
func ownGroup(*exec.Cmd) {}
func endGroup(*exec.Cmd) {}
