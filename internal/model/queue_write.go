package model

// write commits the transaction of a relay without a broker, or does not.
func (b *queueSteps) write(i int) {
	c, n := b.c, b.from
	l := n.relay[i]
	back := func(pc int8, name string) {
		m := b.from
		if m.relay[i] = (relay{}); pc != resting {
			m.relay[i] = relay{pc: pc, ids: l.ids}
		}
		b.add(relayNames[i], -1, name, &m, OK)
	}
	alone := l.ids&(l.ids-1) == 0
	fails, may := false, false
	for q := range c.rows {
		switch {
		case l.ids>>q&1 == 0:
		case c.kind[q] == undecodable && c.letters:
			n.row[q].status = lettered
		case c.kind[q] == undecodable:
			back(resting, "cannot decode a row, rolls back")
			return
		default:
			fails = fails || !c.store(&n, i, q, 0) || c.kind[q] == unwritable
			may = may || c.kind[q] == flaky
		}
	}
	if l.pc == writing && c.mark == markWith {
		if c.recheck && !c.lock && !b.still(i) {
			back(resting, "finds a row taken, rolls back")
			return
		}
		b.markAll(&n, i)
	}
	if fails || may {
		if alone {
			back(refusing, "the row is refused, the transaction is rolled back")
		} else {
			back(resting, "a row is refused, the transaction is rolled back")
		}
	}
	if fails {
		return
	}
	switch {
	case c.wakes == wakeAfter:
		n.relay[i].pc = waking
	case c.mark == markAfter:
		n.relay[i].pc = marking
	default:
		n.relay[i] = relay{}
	}
	b.add(relayNames[i], -1, "commits", &n, OK)
}

// still: the rows of relay i, which has not locked them, are still to be done.
func (b *queueSteps) still(i int) bool {
	for q := range b.c.rows {
		if b.from.relay[i].ids>>q&1 == 1 && !b.c.due(&b.from.row[q], i) {
			return false
		}
	}
	return true
}

func (b *queueSteps) markAll(n *queueState, i int) {
	for q := range b.c.rows {
		if r := &n.row[q]; n.relay[i].ids>>q&1 == 1 {
			n.cursor = max(n.cursor, int8(q+1))
			if r.status != lettered || b.c.kind[q] != undecodable {
				r.status = relayed
			}
		}
	}
	if b.c.byStatus {
		n.cursor = 0
	}
}

// refusal records in a transaction of its own that the database refused relay i's row.
func (b *queueSteps) refusal(i int) {
	c, n := b.c, b.from
	if b.waits(i) {
		return
	}
	for q := range c.rows {
		if r := &n.row[q]; n.relay[i].ids>>q&1 == 1 && c.open(r, i) {
			c.failed(r, i)
			if c.kind[q] == flaky || c.kind[q] == unwritable {
				r.fails++
			}
		}
	}
	n.relay[i] = relay{}
	b.add(relayNames[i], -1, "records the refusal, if the row is still to be done", &n, OK)
}

// failed spends an attempt.
func (c *queueConfig) failed(r *queueRow, i int) {
	r.att++
	r.bare = false
	if r.att >= c.maxAtt {
		r.status = lettered
		return
	}
	r.status, r.next, r.claimed = waiting, c.skew[i]+queueBackoff, 0
}

// store writes the deliveries of row q under an event id, as process i. It reports whether the database took them.
func (c *queueConfig) store(n *queueState, i, q int, id int8) bool {
	for k := range c.subs {
		d := &n.row[q].sub[k]
		switch {
		case !c.matches(i, k):
		case c.unique && d.ids>>id&1 == 1 && c.conflict:
		case c.unique && d.ids>>id&1 == 1:
			return false
		default:
			d.many++
			d.ids |= 1 << id
			d.wake = d.wake || c.wakes == wakeWith
			d.done = false
		}
	}
	return true
}
