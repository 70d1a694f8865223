//go:build !race

package durable_test

// herdRows is how many rows are due at once: more than one sweep wakes.
const herdRows = 1_000
