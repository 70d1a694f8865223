//go:build race

package sequences_test

// Few under the race detector, where SQLite is some 28 times slower.
const sequences, nightly = 20, 200
