package durable

import (
	"sync"

	"github.com/openloam/loam/ledger"
)

// inflight is the table of runs in this process whose claim was not found lost: to be renewed, and never to be taken over
// here.
type inflight struct {
	mu   sync.Mutex
	runs map[ledger.Key]*run
}

func newInflight() *inflight { return &inflight{runs: map[ledger.Key]*run{}} }

func (t *inflight) add(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[r.claim.Key] = r
}

// remove takes r out, unless a newer run of the same key has its place.
func (t *inflight) remove(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs[r.claim.Key] == r {
		delete(t.runs, r.claim.Key)
	}
}

func (t *inflight) has(k ledger.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[k] != nil
}

func (t *inflight) holds(c ledger.Claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[c.Key]
	return r != nil && r.claim == c
}

func (t *inflight) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.runs) == 0
}

func (t *inflight) all() []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*run, 0, len(t.runs))
	for _, r := range t.runs {
		out = append(out, r)
	}
	return out
}
