package sequences_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// look is what a process makes of a wake-up for these rows before it claims (D-07, D-20, J-03, J-05): a suspect that is not
// alone is handed on, and a row that it runs already is left to that run.
func (m *model) look(p *proc, tenant string, rows []*row, alone bool) *call {
	c := &call{p: p, tenant: tenant}
	for _, r := range rows {
		switch {
		case r.event.tenant != tenant, !m.waits(r, m.now.Add(early)):
		case r.next.After(m.now):
			c.aside = append(c.aside, r)
		case p.running(r):
			m.saw["J-03 own run"]++
			c.aside = append(c.aside, r)
		case r.suspect() && !alone:
			m.saw["D-20 a suspect beside others"]++
			c.handOn = append(c.handOn, wakeNow(r))
		default:
			c.ready = append(c.ready, r)
		}
	}
	return c
}

// short reports whether there are fewer free slots than the call needs and could have: then it waits for more, but not for long.
func (c *call) short() bool { return min(len(c.ready), slots) > c.p.freeSlots() }

// grant is J-05: no more are claimed than there are free slots.
func (m *model) grant(c *call) {
	n := min(len(c.ready), c.p.freeSlots())
	for _, r := range c.ready[n:] {
		m.saw["J-05 no slot"]++
		c.handOn = append(c.handOn, wakeNow(r))
	}
	c.ready = c.ready[:n]
}

// claim is the transaction of a call, which decides with what is then so. A call whose first try was committed and whose
// answer was lost finds its claims again, and counts no start twice.
func (m *model) claim(c *call) (started []*run, woken []wake) {
	if len(c.ready)+len(c.aside)+len(c.handOn) == 0 || !m.tenants[c.tenant] { // T-08: the sweep parks the rows
		return nil, nil
	}
	woken = slices.Clone(c.handOn)
	claimed, again := m.claimsOf(c), true
	if len(claimed) == 0 {
		claimed, again = m.take(c), false
	}
	decided := map[*row]bool{}
	for _, r := range claimed {
		if again && !m.waits(r, m.now) { // changed in between: the start did not happen
			m.saw["claimed again, and changed in between"]++
			r.claim = nil
			if r.status == durable.Pending {
				r.runs--
				r.unfinished--
			}
			continue
		}
		if !again {
			r.runs++
			r.unfinished++
		}
		decided[r] = true
		runs, w := m.judge(c, r)
		started, woken = append(started, runs...), append(woken, w...)
	}
	for _, r := range append(append([]*row{}, c.aside...), c.ready...) {
		if !decided[r] && m.waits(r, m.now.Add(early)) {
			woken = append(woken, m.leave(c, r)...)
		}
	}
	return started, woken
}

// claimsOf finds the claims that the call has, and gives them a fresh lease.
func (m *model) claimsOf(c *call) (out []*row) {
	for _, r := range c.ready {
		if r.claim != nil && r.claim.call == c {
			m.saw["L-03 own claim found again"]++
			r.claim.lease = millis(m.now).Add(rig.Lease)
			out = append(out, r)
		}
	}
	return out
}

// take takes what is due and free.
func (m *model) take(c *call) (out []*row) {
	for _, r := range c.ready {
		if m.waits(r, m.now) && m.free(r) && !c.p.running(r) {
			if r.claim != nil {
				m.saw["L-08 taken over"]++
			}
			r.claim = &claim{c, millis(m.now), millis(m.now).Add(rig.Lease)}
			out = append(out, r)
		}
	}
	return out
}

// judge decides about a claimed row: to be run, left to another process (D-22), or parked (D-11, D-20).
func (m *model) judge(c *call, r *row) ([]*run, []wake) {
	sub, mine := c.p.code.handler(r.key)
	switch crashes := r.unfinished - 1; {
	case !mine && m.alive(r.key):
		m.saw["D-22 put back"]++
		r.runs--
		r.unfinished--
		r.claim, r.next = nil, m.now.Add(putBackFor)
		return nil, []wake{wakeAt(r, r.next)}
	case !mine:
		m.saw["D-11 unknown"]++
		r.runs--
		r.park(fmt.Sprintf("no registered subscriber %q", r.key))
		return nil, nil
	case crashes > crashLimit:
		m.saw["D-20 crash limit"]++
		r.runs--
		r.park(fmt.Sprintf("died %d times in a row while this was being run (the limit is %d)", crashes, crashLimit))
		return nil, nil
	}
	started := &run{
		p: c.p, row: r, sub: sub, claim: r.claim, number: r.runs, next: r.next, started: m.now, slot: true, known: true,
		deadline: m.mono.Add(sub.timeout), stuck: m.mono.Add(sub.timeout + stuckAfter), expires: m.mono.Add(rig.Lease - rig.Margin),
	}
	c.p.runs = append(c.p.runs, started)
	return []*run{started}, nil
}

// leave decides about a row that was asked for and not claimed.
func (m *model) leave(c *call, r *row) []wake {
	switch {
	case r.next.After(m.now): // put back for the due time
		m.saw["D-07 early"]++
		return []wake{wakeAt(r, r.next)}
	case r.done:
		m.saw["L-05 done"]++
		r.deliver(m.now)
		return nil
	case r.claim == nil && c.p.running(r): // its run has its outcome, or will be refused
		m.saw["J-03 own run on its way out"]++
		return []wake{wakeAt(r, m.now.Add(time.Second))}
	case r.claim == nil:
		return []wake{wakeNow(r)}
	case c.p.running(r): // its run does what is needed
		return nil
	}
	m.saw["L-04 held elsewhere"]++
	return []wake{wakeAt(r, r.claim.lease.Add(rig.Margin))}
}

// park makes a row dead: its claim is gone (D-25), and no failure is counted.
func (r *row) park(reason string) {
	r.status, r.lastError, r.unfinished, r.next, r.claim, r.done = durable.Dead, reason, 0, time.Time{}, nil, false
}

// deliver is D-08.
func (r *row) deliver(now time.Time) {
	r.status, r.delivered, r.lastError, r.unfinished, r.next = durable.Delivered, now, "", 0, time.Time{}
}

// outcome is what a handler's result means.
type outcome struct {
	kind string
	text string // of the error
	next time.Time
}

// decide is D-13, D-14, D-15, ADR 0008. A result is what the handler did.
func (m *model) decide(r *run, res result) outcome {
	out := outcome{kind: "failure", text: res.text}
	switch {
	case res.kind == "success", res.kind == "park", res.kind == "snooze":
		out.kind = res.kind
	case res.kind == "panic", res.kind == "goexit", res.kind == "retry after":
	case errors.Is(r.cause, durable.ErrShutdown):
		out.kind = "cut"
	case errors.Is(r.cause, durable.ErrClaimLost):
		out.kind = "lost"
	}
	if res.wait > 0 {
		out.next = m.now.Add(res.wait)
	}
	return out
}

// finish is the transaction that writes an outcome, on condition of the claim (L-03). Written before, and its answer lost,
// it does nothing.
func (m *model) finish(r *run, out outcome) []wake {
	row := r.row
	switch {
	case r.written:
		m.saw["L-03 outcome written before"]++
		return nil
	case row.claim != r.claim:
		m.saw["L-03 outcome refused"]++
		return nil
	}
	m.saw["outcome "+out.kind]++
	r.written, row.claim = true, nil
	switch out.kind {
	case "success":
		row.done = true
		row.deliver(m.now)
		return nil
	case "snooze":
		row.unfinished, row.next = 0, out.next
		return []wake{wakeAt(row, row.next)}
	case "cut":
		row.unfinished, row.next = 0, r.next
		return []wake{wakeNow(row)}
	case "lost": // it stays counted as a crash
		row.next = r.next
		return []wake{wakeNow(row)}
	}
	row.attempts++
	row.failures++
	row.unfinished, row.lastError = 0, out.text
	if out.kind == "park" || row.attempts >= r.sub.max {
		m.saw["D-10 dead"]++
		row.status, row.next = durable.Dead, time.Time{}
		return nil
	}
	if row.next = out.next; row.next.IsZero() {
		row.next = r.started.Add(r.sub.wait(row.attempts))
	}
	return []wake{wakeAt(row, row.next)}
}

// ended takes the run out of its process.
func (r *run) ended() {
	for i, o := range r.p.runs {
		if o == r {
			r.p.runs = append(r.p.runs[:i:i], r.p.runs[i+1:]...)
			return
		}
	}
}
