//go:build !race

package durable_test

// herdRows is how many rows are due at once: more than a few sweeps wake.
const herdRows = 2000
