package main

import (
	"cmp"
	"slices"
	"time"
)

// writing is how long a process may take to try to write an outcome, and be refused, when the database can be written.
const writing = 2 * time.Second

// mustBeRefused reports whether a run that was valid until some time went on while another process began to run the same,
// and its own process then lived long enough to try to write the outcome. (An outcome that would change nothing but give
// the claim back is not always said to be refused.)
func (ev *evidence) mustBeRefused(runs []handled, i int, validUntil int64) bool {
	h := &runs[i]
	switch behaviour(h.result) {
	case succeeds, panics, exits, retries, parks:
	case fails, snoozes, undo, cutShort:
		return false
	}
	if over := cmp.Or(ev.lives[h.process].killed, ev.lives[h.process].ended); over != 0 && over < ev.afterWritable(h.end, int64(writing)) {
		return false
	}
	for _, next := range runs[i+1:] {
		if next.start >= validUntil && next.start < h.end && next.process != h.process {
			return true
		}
	}
	return false
}

// afterWritable is when the database could have been written for so long since a time: there was room, the server was in reach, and nobody was
// suspended, who may hold the lock.
func (ev *evidence) afterWritable(from, long int64) int64 {
	bad := slices.Clone(ev.full)
	for _, l := range ev.lives {
		for _, s := range l.stopped {
			bad = append(bad, [2]int64{s.from, s.until})
		}
	}
	slices.SortFunc(bad, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, b := range bad {
		if b[1] <= from {
			continue
		}
		if good := b[0] - from; good >= long {
			break
		} else if good > 0 {
			long -= good
		}
		from = b[1]
	}
	return from + long
}
