//go:build !race

package sweep_test

import "time"

const (
	// prunedBeside is how many rows of each table are pruned while events are published, and planned for on SQLite.
	prunedBeside = 20_000
	// prunedByTwo is how many rows of each table two processes prune.
	prunedByTwo = 6_000
	// publishLimit is how long a publish may take beside a prune.
	publishLimit = time.Second
)
