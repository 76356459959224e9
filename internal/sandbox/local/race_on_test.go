//go:build race

package local_test

// raced says that the race detector is on: PID 1 takes much more memory.
const raced = true
