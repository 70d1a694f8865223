//go:build !race

package sequences_test

// sequences is how many are tried unless LOAM_NIGHTLY or -rapid.checks says otherwise.
const sequences = 500
