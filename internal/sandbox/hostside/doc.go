// Package hostside is what stands on the host beside the boxes of a provider of this machine: the launcher, which forks for it, and of each
// box that has a network or published ports a process that carries them (package guest/nethost), its log and its listeners. So every
// provider's boxes have the same network: no interface but a TUN, and behind that one policy.
//
// Words: the door is the socket pair between a network host and its box's PID 1. The package makes no boxes and no TUNs, and knows of no
// provider's files but the log that it is given a place for.
package hostside
