//go:build !race

package faultpoints_test

// every how many points the faults happen.
const every = 1
