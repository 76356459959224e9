// Package home is the data plane of a desktop's files: parts that become files of the session user's home, and files that become parts. Drivers and the
// servers of apps share it.
//
// A path is relative to the home, with slashes and in its shortest form. Nothing is read or written outside the home, whatever links there are. The
// package keeps no state and decides nothing of when: turns, resets and what a home looked like at first are its callers'.
package home

import "agentenv.internal/agentenv/sdk/wire"

// Private is the folder of a home that holds what servers keep there; it is no data.
const Private = wire.PrivateFolder
