//go:build !guest_embed || !linux || !(amd64 || arm64)

package local

// guestProgram is empty: the binary plays the guest itself.
var guestProgram []byte
