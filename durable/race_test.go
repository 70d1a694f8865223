//go:build race

package durable_test

// herdRows is smaller than without the race detector, under which SQLite is very slow, and still more than one sweep wakes.
const herdRows = 600
