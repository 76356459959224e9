//go:build !integration || !linux

package host_test

// Sandboxes of real processes are of the integration tier.
func dispatch()          {}
func playRealBoxes() int { return 2 }
