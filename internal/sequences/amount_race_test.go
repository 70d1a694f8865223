//go:build race

package sequences_test

// sequences is few under the race detector, where SQLite is some 28 times slower.
const sequences = 20
