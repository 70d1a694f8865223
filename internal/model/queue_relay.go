package model

// relay adds what relay i may do next. Being killed leaves it where it was at the start, with nothing in its hands; so does the
// lost answer of a claim, or of a transaction of a relay without a broker: it looks again.
func (b *queueSteps) relay(i int) {
	l := &b.from.relay[i]
	if l.pc != resting {
		n := b.from
		n.relay[i] = relay{}
		b.add(relayNames[i], -1, "is killed", &n, OK)
	}
	switch l.pc {
	case resting:
		b.choose(i)
	case writing, markedOld:
		b.write(i)
	case waking:
		n := b.from
		for q := range b.c.rows {
			for k := range b.c.subs {
				if d := &n.row[q].sub[k]; l.ids>>q&1 == 1 && d.many > 0 && !d.done {
					d.wake = true
				}
			}
		}
		n.relay[i] = relay{}
		b.add(relayNames[i], -1, "inserts the wake-ups", &n, OK)
	case marking:
		n := b.from
		if b.waits(i) {
			return
		}
		for q := range b.c.rows {
			if l.ids>>q&1 == 1 && b.c.open(&n.row[q], i) {
				n.row[q].status = relayed
			}
		}
		n.relay[i] = relay{}
		b.add(relayNames[i], -1, "marks the rows done", &n, OK)
	case refusing:
		b.refusal(i)
	case picked:
		b.claim(i, int(l.ids)-1)
	default:
		b.broker(i)
	}
}

// due: the row may be taken by relay i.
func (c *queueConfig) due(r *queueRow, i int) bool {
	switch r.status {
	case waiting:
		return r.next <= c.skew[i] || r.next <= c.lowest()
	case processing:
		if r.bare {
			return c.noStamp
		}
		return c.reclaim && r.claimed+queueLease <= c.skew[i]
	}
	return false
}

// open is the condition on a row's status that a mark has which is not part of the transaction that chose the row.
func (c *queueConfig) open(r *queueRow, i int) bool { return !c.recheck || c.due(r, i) }

// waits: another relay's transaction holds one of relay i's rows.
func (b *queueSteps) waits(i int) bool {
	for q := range b.c.rows {
		if b.from.relay[i].ids>>q&1 == 1 && b.c.locked(&b.from, i, q) {
			return true
		}
	}
	return false
}

// choose begins with the rows that are due: without a broker with any of them, since others may have come since, or the batch
// have been cut; with a broker, one by one.
func (b *queueSteps) choose(i int) {
	c, s := b.c, &b.from
	var ids int8
	for q := range c.rows {
		if c.due(&s.row[q], i) && !c.locked(s, i, q) && (c.byStatus || int8(q) >= s.cursor) {
			ids |= 1 << q
		}
	}
	if !c.poll && !s.nudge {
		return
	}
	for some := int8(1); some < 1<<c.rows; some++ {
		if some&^ids != 0 || !c.halves && some != ids {
			continue
		}
		n := *s
		n.nudge = false
		if !c.broker[i] {
			n.relay[i] = relay{pc: writing, ids: some}
			if c.mark == markFirst {
				b.markAll(&n, i)
				n.relay[i].pc = markedOld
			}
			b.add(relayNames[i], int(some)-1, "chooses rows", &n, OK)
			continue
		}
		for q := range c.rows {
			switch {
			case some != 1<<q:
			case c.claimIf:
				b.claim(i, q)
			default:
				n.relay[i] = relay{pc: picked, ids: some}
				b.add(relayNames[i], q, "reads a row that may be claimed", &n, OK)
			}
		}
	}
}
