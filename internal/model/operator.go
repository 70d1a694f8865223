package model

// sweep selects a row in one step and inserts its wake-up in another; its clock is the true time.
func (b *steps) sweep(r int) {
	c, n := b.c, b.from
	if !c.sweepOn {
		return
	}
	v := &n.row[r]
	switch {
	case v.swept:
		v.swept = false
		c.wake(&n, 1<<r, 0)
		b.add(-1, r, "the sweep inserts a wake-up", &n, OK)
	case v.status == pending && v.next <= 0 && !v.paused && (v.led != inProgress || v.lease+c.margin <= 0):
		v.swept = true
		b.add(-1, r, "the sweep selects the row", &n, OK)
	}
}

// lostCheck wakes the row of a claim that may be taken over, or deletes the claim when the row cannot be run now. It runs in
// every process, and looks away from what the process runs itself.
func (b *steps) lostCheck(r int) {
	c, n := b.c, b.from
	v := &n.row[r]
	if !c.lostCheck || v.led != inProgress || v.lease+c.margin > 0 || !c.seenAsLost(&n, r) {
		return
	}
	if v.status == pending && v.next <= 0 && !v.paused {
		if n.wake[0][1<<r-1] == 0 {
			c.wake(&n, 1<<r, 0)
			b.add(-1, r, "the check for lost claims inserts a wake-up", &n, OK)
		}
		return
	}
	if c.limit > 0 && !v.nobody && v.status == pending {
		v.crashes++
	}
	n.release(r)
	b.add(-1, r, "the check for lost claims deletes the claim", &n, OK)
}

// seenAsLost: some process that lives does not run this claim itself.
func (c *config) seenAsLost(s *state, r int) bool {
	for p := range c.procs {
		if c.proc(p) != p || !s.w[p].alive {
			continue
		}
		ours := false
		for j := range c.procs {
			if u := &s.w[j].run[r]; c.proc(j) == p && u.mine && u.tabled() {
				ours = true
			}
		}
		if !ours {
			return true
		}
	}
	return false
}

// operator adds what an operator may do to a row, and the application by publishing its event again.
func (b *steps) operator(r int) {
	c, s := b.c, &b.from
	v := &s.row[r]
	if v.status == dead && s.left.redels > 0 {
		n := *s
		n.left.redels--
		if c.redelForgets {
			n.void(r)
		}
		n.row[r].anew(c)
		if c.redelReset {
			n.row[r].runs = 0
		}
		if c.edit {
			n.row[r].payload++
		}
		c.wake(&n, 1<<r, 0)
		b.add(-1, r, "an operator redelivers", &n, OK).final = true
	}
	if v.status == pending && s.left.parks > 0 {
		n := *s
		n.left.parks--
		if c.parkForgets {
			n.void(r)
		}
		n.row[r].status = dead
		b.add(-1, r, "the row is parked as its tenant is removed", &n, OK)
	}
	if v.status == delivered && s.left.anews > 0 {
		n := *s
		n.left.anews--
		n.row[r].anew(c)
		n.row[r].want = true
		if c.againForces {
			n.release(r)
		}
		c.wake(&n, 1<<r, 0)
		b.add(-1, r, "an operator redelivers a delivered row", &n, OK).final = true
	}
	if v.status == delivered && s.left.repubs > 0 && !v.want {
		n := *s
		n.left.repubs--
		n.row[r].anew(c)
		c.wake(&n, 1<<r, 0)
		b.add(-1, r, "the row is pruned and its event published again", &n, OK).final = true
	}
	b.pause(r)
}

// anew makes a final row pending again.
func (v *row) anew(c *config) {
	v.status, v.att, v.next, v.unf, v.fails, v.crashes = pending, 0, c.low(), 0, 0, 0
	v.effect = 0
}

func (b *steps) pause(r int) {
	c, n := b.c, b.from
	v := &n.row[r]
	switch {
	case !v.paused && n.left.pauses > 0:
		n.left.pauses--
		v.paused = true
		b.add(-1, r, "an operator pauses the subscriber", &n, OK)
	case v.paused && c.resume == resumeBefore && !v.announced:
		v.announced = true
		b.resumed(&n, r)
		b.add(-1, r, "resuming wakes the row", &n, OK)
	case v.paused:
		v.paused, v.announced = false, false
		if c.resume == resumeAll || c.resume == resumeDue && v.next <= c.resumeSkew {
			b.resumed(&n, r)
		}
		b.add(-1, r, "an operator resumes the subscriber", &n, OK)
	}
}

func (b *steps) resumed(n *state, r int) {
	if v := &n.row[r]; v.status == pending {
		b.c.wake(n, 1<<r, v.next)
	}
}
