// Package pid1 is the program that runs as PID 1 of a sandbox: it builds the box's world, starts and reaps its commands, serves the
// wire of package guest, and ends the box with its owner or its lease.
//
// Words: the world is what the box sees (root, mounts, names); the spawner is the one thread that starts commands, and everything that a
// command must not be able to do is taken from that thread; a mark is what tells the descendants of one command from all others.
//
// Dispatch is the only door: main functions and TestMain call it first. The package makes no policy: what the world holds and which
// limits apply is the provider's word, guest.Boot.
package pid1
