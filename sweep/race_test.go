//go:build race

package sweep_test

import "time"

// All is less strict under the race detector, under which SQLite is some thirty times slower.
const (
	prunedBeside = 2_000
	prunedByTwo  = 2_000
	publishLimit = 10 * time.Second
)
