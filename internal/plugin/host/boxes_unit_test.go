//go:build !integration || !linux

package host_test

import "agentenv.internal/agentenv/internal/guest/pid1"

func dispatch() { pid1.Dispatch() }

// Sandboxes of real processes are of the integration tier.
func playRealBoxes() int { return 2 }
