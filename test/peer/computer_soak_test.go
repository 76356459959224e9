//go:build soak

package peer_test

import "testing"

// TestComputerConformanceSoak: ten of ten.
func TestComputerConformanceSoak(t *testing.T) {
	conform(t, 10)
}
