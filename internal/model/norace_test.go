//go:build !race

package model_test

// limit is none: all states.
const limit = 0
