// Package keeper starts programs on the host of which nothing is left when they end, or are ended, or this program dies: neither what left their process
// group nor what was forked twice.
//
// Words: a keeper is a process between this one and a program; it is of the guest program (package guest/pid1). Where there is none, such as off Linux,
// programs have process groups, and what leaves those outlives them.
package keeper

import (
	"fmt"
	"syscall"
)

// Ended is how a program ended that didn't end well.
type Ended struct{ Status syscall.WaitStatus }

func (e *Ended) Error() string {
	if e.Status.Signaled() {
		return fmt.Sprintf("was ended by the signal %s", e.Status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", e.Status.ExitStatus())
}
