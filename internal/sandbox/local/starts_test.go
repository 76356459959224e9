//go:build !soak

package local_test

// manyStarts is how many boxes TestNothingAddsUp makes.
const manyStarts = 60

// manyKills is how many rounds of kills TestNothingLeftWhateverIsKilled makes.
const manyKills = 3
