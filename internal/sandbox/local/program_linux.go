package local

import (
	"fmt"
	"os"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// Carried is the guest program that this binary has inside; nil: it plays the guest itself.
func Carried() func() ([]byte, error) {
	if len(guestProgram) == 0 {
		return nil
	}
	return func() ([]byte, error) { return guestProgram, nil }
}

// GuestProgram is the guest program as bytes, for providers that have to show it to an engine.
func GuestProgram() ([]byte, error) {
	if len(guestProgram) > 0 {
		return guestProgram, nil
	}
	if !guest.PlaysPID1() {
		return nil, hostside.ErrNoGuest
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("read this program: %w", err)
	}
	return b, nil
}
