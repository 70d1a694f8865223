package model

// worker adds what worker i may do next.
func (b *steps) worker(i int) {
	c, w := b.c, b.from.w[i]
	if !w.alive {
		if c.proc(i) == i && (!c.lastGone || i < c.procs-1) {
			b.restart(i)
		}
		return
	}
	if c.proc(i) == i {
		b.kill(i)
	}
	switch w.pc {
	case idle:
		b.fetch(i)
	case fetched:
		switch {
		case c.ignorant(i) && !c.unkClaim:
			b.unknownUnclaimed(i)
		case c.peek || !c.recheck:
			b.look(i)
		default:
			b.choose(i)
		}
	case selected:
		b.choose(i)
	case repeat:
		b.again(i)
	case busy:
		if w.owes != 0 {
			n := b.from
			c.wake(&n, w.owes, 0)
			n.w[i].owes = 0
			n.rest(i)
			b.add(i, -1, "hands the rest on", &n, OK)
		}
		for r := range c.rows {
			b.run(i, r)
		}
	}
}

func (b *steps) restart(i int) {
	n := b.from
	for j := range b.c.procs {
		if b.c.proc(j) == i {
			n.w[j].alive = true
		}
	}
	b.add(i, -1, "restarts", &n, OK)
}

// kill ends a process with all its workers. River gives their jobs back, if it does.
func (b *steps) kill(i int) {
	c, n := b.c, b.from
	if n.left.crashes == 0 {
		return
	}
	some := false
	for j := range c.procs {
		if c.proc(j) != i {
			continue
		}
		w := &n.w[j]
		some = some || w.pc != idle && (!c.killLate || w.pc == busy)
		if c.rescue {
			c.wake(&n, w.ids, rescue)
		}
		*w = worker{}
	}
	if some {
		n.left.crashes--
		b.add(i, -1, "is killed", &n, OK)
	}
}

func (b *steps) fetch(i int) {
	for k, many := range b.from.wake[0] {
		if many > 0 {
			n := b.from
			n.wake[0][k]--
			n.w[i].pc, n.w[i].ids = fetched, int8(k+1)
			b.add(i, -1, "fetches a wake-up", &n, OK)
		}
	}
}

// runnable: pending and due by the worker's clock, and not paused as far as the pause is looked at.
func (c *config) runnable(w *row, i int, pause bool) bool {
	return w.status == pending && c.due(w, i) && (!pause || !w.paused)
}

func (c *config) due(w *row, i int) bool { return w.next <= c.skew[i] || w.next <= c.low() }

// soon: not due by the worker's clock, but early by no more than a wake-up may be.
func (c *config) soon(w *row, i int, pause bool) bool {
	return c.putBack && w.status == pending && !c.due(w, i) && w.next-c.skew[i] <= early && (!pause || !w.paused)
}

// look is the look at the rows before the claim: what it leaves out is not looked at again.
func (b *steps) look(i int) {
	c, n := b.c, b.from
	w := &n.w[i]
	var ids int8
	for r := range c.rows {
		v := &n.row[r]
		if w.ids>>r&1 == 0 {
			continue
		}
		switch {
		case c.runnable(v, i, c.pauseIn != pauseNowhere):
			ids |= 1 << r
			if c.fromSnap {
				w.run[r].snap = v.att
			}
		case c.soon(v, i, c.pauseIn != pauseNowhere):
			c.wake(&n, 1<<r, v.next-c.skew[i])
		}
	}
	if w.pc, w.ids = selected, ids; ids == 0 {
		*w = worker{alive: true}
		b.add(i, -1, "looks at the rows: nothing to do", &n, OK)
		return
	}
	b.add(i, -1, "looks at the rows: there is something to run", &n, OK)
}

// run adds what may become of worker i's run of row r.
func (b *steps) run(i, r int) {
	c, s := b.c, &b.from
	u := &s.w[i].run[r]
	if u.pc >= running && u.pc < leaving {
		b.renew(i, r)
	}
	set := func(pc int8, name string) *state {
		n := *s
		n.w[i].run[r].pc = pc
		return &b.add(i, r, name, &n, OK).to
	}
	switch {
	case u.pc == running:
		if c.txn {
			b.commit(i, r)
		} else {
			set(succeeded, "the handler succeeds")
		}
		set(failed, "the handler fails")
		if s.left.snoozes > 0 {
			set(snoozed, "the handler snoozes").left.snoozes--
		}
		if c.shutdown {
			set(cut, "the handler is cut by shutdown")
		}
		if c.skew[i] >= u.lease-c.stop || u.outside {
			set(lost, "the handler is cut: its claim is lost, or was not renewed")
		}
		if s.left.stucks > 0 {
			set(stuck, "the handler never returns").left.stucks--
		}
	case u.ending():
		b.outcome(i, r)
	case u.pc == unsure:
		b.unsure(i, r)
	case u.pc == leaving:
		n := *s
		n.end(i, r)
		b.add(i, r, "the run leaves its process's table", &n, OK)
	case u.pc == sawDone:
		n := *s
		if v := &n.row[r]; v.status == pending && (v.led == done || !c.doneGuard) {
			v.status = delivered
		}
		n.end(i, r)
		b.add(i, r, "marks the row delivered, as the ledger says", &n, OK)
	}
}

func (b *steps) renew(i, r int) {
	c, n := b.c, b.from
	v, u := &n.row[r], &n.w[i].run[r]
	if !c.renew || u.outside {
		return
	}
	if v.led == inProgress && (c.renewLoose || c.holds(v, u)) {
		if v.lease >= c.skew[i]+lease {
			return
		}
		bad := OK
		if !u.mine {
			bad = StaleRenewal
		}
		v.lease = c.skew[i] + lease
		u.lease = v.lease
		b.add(i, r, "renews", &n, bad)
		return
	}
	if c.oneProcess && c.lostLeaves { // matters only where something else looks into the table
		u.outside = true
		b.add(i, r, "finds the claim lost", &n, OK)
	}
}

// holds is the condition on the ledger's row that the outcome and the renewal have.
func (c *config) holds(v *row, u *run) bool {
	switch c.token {
	case tokenTime:
		return v.led == inProgress && u.eq
	case tokenFull:
		return v.led == inProgress && u.mine
	}
	return true
}
