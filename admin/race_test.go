//go:build race

package admin_test

// slow is how much longer than without it a measured time may be under the race detector.
const slow = 10
