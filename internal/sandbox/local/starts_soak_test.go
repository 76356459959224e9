//go:build soak

package local_test

// manyStarts is how many boxes TestNothingAddsUp makes.
const manyStarts = 1000

// manyKills is how many rounds of kills TestNothingLeftWhateverIsKilled makes.
const manyKills = 300
