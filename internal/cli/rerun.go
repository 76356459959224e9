package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

// rerun runs the same command line in a new process, which takes this one's place: what was installed is loaded, signals reach it, and its exit code is the
// command's. It returns only when that process can't be started.
func rerun(s *term.Streams, args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to run it again: %w", err)
	}
	words := []string{"agent-env"}
	for _, a := range args {
		words = append(words, diag.ShellWord(a))
	}
	s.Problem("Running it again: %s", term.Clean(strings.Join(words, " ")))
	env := append(os.Environ(), verb.RerunVariable+"=1")
	if err := syscall.Exec(exe, append([]string{os.Args[0]}, args...), env); err != nil { //nolint:gosec // this very program
		return fmt.Errorf("run %s again: %w", exe, err)
	}
	return nil
}

// die ends the process by a signal that was caught.
func die(sig os.Signal) int {
	signal.Reset(sig)
	number, ok := sig.(syscall.Signal)
	if !ok {
		return verb.Refused
	}
	_ = syscall.Kill(os.Getpid(), number) // a process may always signal itself
	time.Sleep(time.Second)               // it is delivered before that
	return verb.Signalled + int(number)
}
