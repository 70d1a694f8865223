package main

import (
	"cmp"
	"slices"
	"time"
)

// Two runs of one (event, subscriber) must not overlap while both are within the leases that their processes know (L-02).
// So each run is given the time at which its validity ended:
//
//   - at its end, which its process wrote down before the outcome was written;
//   - when its context was cancelled because the claim was lost, or could not be renewed: from then on the process knows.
//     Any other cancellation (a shutdown) keeps the claim, and does not count;
//   - when its process was certainly dead, for one that was killed;
//   - for one whose process was suspended past its lease: where that lease, less the margin, ended. The process had
//     promised to cancel the handler then and could not; this is the one exception that the contract states. Until when the
//     lease was is read from the database while the process is suspended, so nothing is guessed: not even that
//     the last renewal was in time.
//
// All doubt is decided against Loam: validity lasts to the latest time at which the process may have been at it.

// soon bounds what happens at once: from a claim to the start of its handler, from SIGCONT to what was delayed.
const soon = 300 * time.Millisecond

// validUntil returns the end of the validity of a run; one that never began to be valid ends at its start. ok is false if
// there is no end at all: a process that was not killed has neither ended the run nor itself.
func (ev *evidence) validUntil(w what, h *handled) (end int64, ok bool) {
	l := ev.lives[h.process]
	end = h.end
	if end == 0 {
		end = cmp.Or(l.killed, l.ended)
	}
	if end == 0 {
		return 0, false
	}
	if h.lost && h.cancel < end {
		end = h.cancel
	}
	for _, s := range l.stopped {
		switch {
		case h.start <= s.from && s.from < end:
			end = min(end, max(ev.leaseEnd(w, h, &s), s.from))
		case s.until <= h.start && h.start-s.until < int64(time.Second) && ev.lateStart(w, h, &s):
			return h.start, true
		}
	}
	return end, true
}

// leaseEnd is until when a run may believe in its claim, that was going on when its process was suspended.
func (ev *evidence) leaseEnd(w what, h *handled, s *suspension) int64 {
	c, ok := s.leases[w]
	if !ok { // the claim was gone: the run was over, but for writing it down
		return s.from
	}
	if ev.real(c.started, h.process) > h.start+int64(soon) { // another's already: its own was over long before
		return s.from
	}
	return ev.real(c.until, h.process) - int64(margin)
}

// lateStart reports whether a run is of a claim from before its process was suspended, whose lease was over when the
// process went on: the suspension fell between the claim and the start of the handler. The process cancels such a run at
// once, much earlier than any fresh claim can run out; or the claim was there, and nobody had begun to run it.
func (ev *evidence) lateStart(w what, h *handled, s *suspension) bool {
	if h.lost && h.cancel-h.start < int64(soon) {
		return true
	}
	c, ok := s.leases[w]
	if !ok || ev.real(c.until, h.process)-int64(margin) >= h.start {
		return false
	}
	for _, other := range ev.runs[w] {
		if started := ev.real(c.started, other.process); other.start >= started-int64(soon) && other.start <= s.from+int64(soon) {
			return false // it is that run's claim
		}
	}
	return true
}

// real turns a time of a process's own clock into one of ours.
func (ev *evidence) real(at int64, process int) int64 { return at - int64(ev.lives[process].shift) }

// judgeRuns looks at the runs alone.
func (ev *evidence) judgeRuns(v *verdict) {
	for _, l := range ev.lives {
		v.stops += len(l.stopped)
		if l.killed != 0 {
			v.kills++
		}
	}
	strayed := map[int]bool{}
	for w, runs := range ev.runs {
		slices.SortFunc(runs, func(x, y handled) int { return cmp.Compare(x.start, y.start) })
		var latest int64 // valid until
		by, succeeded := 0, false
		for i := range runs {
			h := &runs[i]
			v.runs++
			if succeeded {
				v.repeats++
			}
			succeeded = succeeded || h.result == string(succeeds)
			if l := ev.lives[h.process]; l.shift.Abs() > lease && !strayed[h.process] {
				strayed[h.process] = true // once is enough
				v.wrong("%v was run by process %d, whose clock was %v off, and perhaps others", w, h.process, l.shift)
			}
			end, ok := ev.validUntil(w, h)
			if !ok {
				v.wrong("%v: process %d has ended neither its run nor itself", w, h.process)
				continue
			}
			if end <= h.start {
				continue
			}
			if h.start < latest {
				v.overlaps++
				v.wrong("%v: process %d ran it until %s, process %d from %s: %v together", w, by, clockTime(latest), h.process, clockTime(h.start),
					time.Duration(min(latest, end)-h.start))
			}
			if end > latest {
				latest, by = end, h.process
			}
			v.recovered(ev.recovery(runs, i))
			// A transaction is rolled back when the claim is lost, without a word: the books tell.
			if !keepsBooks(w.key) && ev.mustBeRefused(runs, i, end) {
				ev.overtaken[w] = append(ev.overtaken[w], h.process)
				v.overtaken++
			}
		}
		if at := ev.events[w.event].committed; at != 0 && len(runs) > 0 {
			v.waited = max(v.waited, time.Duration(runs[0].start-at))
		}
	}
}

// recovery is how long after the end, or the suspension, of the process of a run the next one began elsewhere.
func (ev *evidence) recovery(runs []handled, i int) (time.Duration, bool) {
	h := &runs[i]
	l := ev.lives[h.process]
	var from int64
	if h.end == 0 && l.struck > h.start {
		from = l.struck
	}
	for _, s := range l.stopped {
		if h.start <= s.from && (h.end == 0 || h.end > s.from) {
			from = s.from
			break
		}
	}
	if from == 0 {
		return 0, false
	}
	for _, next := range runs[i+1:] {
		if next.start > from && next.process != h.process {
			return time.Duration(next.start - from), true
		}
	}
	return 0, false
}

func clockTime(at int64) string { return time.Unix(0, at).UTC().Format("15:04:05.000000") }
