//go:build race

package model_test

// limit is small here: under the race detector all states would take minutes, and there is nothing concurrent to be found.
const limit = 3000
