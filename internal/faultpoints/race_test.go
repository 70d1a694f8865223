//go:build race

package faultpoints_test

// every how many points the faults happen: under the race detector SQLite, which is C translated to Go, is some thirty times
// slower.
const every = 120
