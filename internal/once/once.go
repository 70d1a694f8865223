// Package once remembers what was seen, for log lines that are to be written once for each.
package once

import "sync"

// limit is how many ids are remembered; then all are forgotten, so that hostile ids cannot fill the memory.
const limit = 1000

// Each remembers which ids it was asked about. The zero Each is ready. It is safe for use by several goroutines.
type Each struct {
	mu   sync.Mutex
	seen map[string]bool
}

// First reports whether the id is new.
func (e *Each) First(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen[id] {
		return false
	}
	if e.seen == nil || len(e.seen) >= limit {
		e.seen = map[string]bool{}
	}
	e.seen[id] = true
	return true
}
