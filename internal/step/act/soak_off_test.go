//go:build !soak

package act_test

// soak makes tests larger.
const soak = false
