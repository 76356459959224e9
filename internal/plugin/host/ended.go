package host

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"agentenv.internal/agentenv/internal/keeper"
)

// ended says how a process ended.
func ended(err error) string {
	if kept, ok := errors.AsType[*keeper.Ended](err); ok {
		return kept.Error()
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "ended with exit code 0"
	case !ok:
		return "ended: " + err.Error()
	}
	if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return fmt.Sprintf("was ended by the signal %s", st.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", exit.ExitCode())
}
