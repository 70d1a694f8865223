package main

import (
	"cmp"
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
	case fails, snoozes, cutShort:
		return false
	}
	if over := cmp.Or(ev.lives[h.process].killed, ev.lives[h.process].ended); over != 0 && over < ev.writable(h.end)+int64(writing) {
		return false
	}
	for _, next := range runs[i+1:] {
		if next.start >= validUntil && next.start < h.end && next.process != h.process {
			return true
		}
	}
	return false
}

// writable is from when on the database can be written, at or after a time: the disk is not full, and nobody is suspended,
// who may hold the lock.
func (ev *evidence) writable(from int64) int64 {
	for again := true; again; {
		again = false
		skip := func(begin, end int64) {
			if begin <= from && from < end {
				from, again = end, true
			}
		}
		for _, f := range ev.full {
			skip(f[0], f[1])
		}
		for _, l := range ev.lives {
			for _, s := range l.stopped {
				skip(s.from, s.until)
			}
		}
	}
	return from
}
