package durable

import (
	"sync"

	"github.com/openloam/loam/ledger"
)

// inflight is the table of runs in this process whose claim was not found lost: to be renewed, and never to be taken over
// here. A place in it is reserved before the claim is committed.
type inflight struct {
	mu       sync.Mutex
	runs     map[ledger.Key]*run
	reserved map[ledger.Key]bool
}

func newInflight() *inflight {
	return &inflight{runs: map[ledger.Key]*run{}, reserved: map[ledger.Key]bool{}}
}

// reserve keeps places for runs whose claims are about to be committed.
func (t *inflight) reserve(runs []*run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range runs {
		t.reserved[r.claim.Key] = true
	}
}

// unreserve gives the places up: the runs are in the table now, or will not be.
func (t *inflight) unreserve(runs []*run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range runs {
		delete(t.reserved, r.claim.Key)
	}
}

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
	return t.runs[k] != nil || t.reserved[k]
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
	return len(t.runs)+len(t.reserved) == 0
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
