//go:build race

package sqlite

// raced says that the race detector is on: times mean nothing.
const raced = true
