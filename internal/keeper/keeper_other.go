//go:build !linux

package keeper

import (
	"os/exec"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/sandbox"
)

// Keeper starts nothing here.
type Keeper struct{}

// New makes one that starts nothing.
func New(func() ([]byte, error)) *Keeper { return &Keeper{} }

// Close has nothing to do.
func (*Keeper) Close() {}

// Kept is a program that was started: none, here.
type Kept struct{ PID int }

// Start tells that there are no keepers here.
func (*Keeper) Start(*exec.Cmd, time.Duration) (*Kept, error) { return nil, sandbox.ErrUnsupported }

// Signal does nothing.
func (*Kept) Signal(syscall.Signal) {}

// Wait answers at once.
func (*Kept) Wait() error { return nil }
