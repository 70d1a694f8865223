//go:build !race

package sequences_test

// sequences is how many are tried unless -rapid.checks says otherwise, and nightly with LOAM_NIGHTLY set.
const sequences, nightly = 500, 10_000
