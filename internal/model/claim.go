package model

// choose adds the claim's transaction, for each choice of the rows that there is a slot for.
func (b *steps) choose(i int) {
	ids := b.from.w[i].ids
	both := true
	for r := range b.c.rows {
		both = both && b.c.runnable(&b.from.row[r], i, b.c.pauseIn != pauseNowhere)
	}
	if b.c.slots == 1 && ids == 3 && both {
		b.claim(i, 1, 2)
		b.claim(i, 2, 1)
		return
	}
	b.claim(i, ids, 0)
}

// claim is the claim's transaction: rows ids are asked for, the rest is handed on.
func (b *steps) claim(i int, ids, rest int8) {
	c, n := b.c, b.from
	t := &claiming{c: c, i: i, n: &n}
	w := &n.w[i]
	snaps := [maxRows]int8{w.run[0].snap, w.run[1].snap}
	w.pc, w.run = busy, [maxRows]run{}
	t.claimRows(ids, snaps)
	b.handOn(t, rest)
	b.emit(t, "claim")
}

// again is the repeat of a claim whose answer was lost: the claims that are its own it keeps, and counts no second start. With
// none found, the first try was not committed, or all was taken over.
func (b *steps) again(i int) {
	c, n := b.c, b.from
	t := &claiming{c: c, i: i, n: &n}
	w := &n.w[i]
	w.pc = busy
	found, asks := false, int8(0)
	for r := range w.run {
		if w.run[r].pc == asked {
			asks |= 1 << r
			found = found || w.run[r].mine
		}
	}
	if !found {
		w.run = [maxRows]run{}
		t.claimRows(asks, [maxRows]int8{})
	}
	for r := 0; found && r < c.rows; r++ {
		if asks>>r&1 == 0 {
			continue
		}
		u, v := &w.run[r], &n.row[r]
		switch {
		case !u.mine && c.repeatEach:
			*u = run{}
			t.left(r)
		case !c.runnable(v, i, c.pauseRep):
			t.takeBack(r)
			t.left(r)
			t.plan[r] = "the row is not to be run, given back"
		default:
			v.lease = c.clamp(c.skew[i] + lease)
			t.grant(r, "its own claim, the handler starts")
		}
	}
	b.emit(t, "repeat")
	if c.giveBack && found {
		b.giveBack(i, &b.from, "gives up the repeat, gives back what it had claimed")
	}
}

// giveBack gives back the claims of worker i in s that nobody will run.
func (b *steps) giveBack(i int, s *state, name string) *state {
	n := *s
	t := &claiming{c: b.c, i: i, n: &n}
	var woken int8
	for r := range n.w[i].run {
		if n.w[i].run[r].mine {
			t.takeBack(r)
			if n.row[r].status == pending {
				woken |= 1 << r
			}
		}
	}
	if b.c.backWakes {
		b.c.wake(&n, woken, 0)
	}
	n.w[i] = worker{alive: true}
	return &b.add(i, -1, name, &n, OK).to
}

// handOn says what becomes of the rows that there is no slot for.
func (b *steps) handOn(t *claiming, rest int8) {
	var ready int8
	for r := range b.c.rows {
		if rest>>r&1 == 1 && b.c.runnable(&t.n.row[r], t.i, true) {
			ready |= 1 << r
		} else if rest>>r&1 == 1 {
			t.left(r)
		}
	}
	switch b.c.handOn {
	case handInClaim:
		b.c.wake(t.n, ready, 0)
	case handAfter:
		t.n.w[t.i].owes = ready
	}
}

// emit adds the step, and those in which its answer is lost, or nobody is there to hear it.
func (b *steps) emit(t *claiming, name string) {
	c, s, i := b.c, &b.from, t.i
	granted := t.granted
	if t.later[0] == t.later[1] && t.later[0] > 0 {
		c.wake(t.n, 3, t.later[0]-1)
	} else {
		for r, at := range t.later {
			if at > 0 {
				c.wake(t.n, 1<<r, at-1)
			}
		}
	}
	t.n.rest(i)
	b.add(i, -1, name, t.n, t.bad).plan = t.plan
	if granted == 0 || t.bad != OK {
		return
	}
	if s.left.gone > 0 {
		if c.giveBack {
			b.giveBack(i, t.n, "claims for a job that is gone: given back").left.gone--
		} else {
			m := b.add(i, -1, "claims for a job that is gone", t.n, OK)
			m.to.left.gone--
			m.to.abandon(i)
			m.to.w[i] = worker{alive: true}
		}
	}
	if s.left.lostAnswers > 0 {
		m := &b.add(i, -1, "claims, and the answer is lost", t.n, OK).to
		m.left.lostAnswers--
		w := &m.w[i]
		w.pc = repeat
		for r := range w.run {
			if u := &w.run[r]; granted>>r&1 == 1 {
				*u = run{pc: asked, tok: c.low(), eq: u.eq, mine: u.mine}
			}
		}
		if !c.ownRepeat {
			m.abandon(i)
			*w = worker{alive: true, pc: fetched, ids: w.ids}
		}
	}
}

// abandon leaves the claims of worker i in the ledger, with nobody who knows of them.
func (s *state) abandon(i int) {
	for r := range s.row {
		if s.w[i].run[r].mine {
			s.row[r].nobody = true
			s.disown(r)
		}
	}
}

// unknownUnclaimed is how a key that is not known was judged before it was done under a claim.
func (b *steps) unknownUnclaimed(i int) {
	n, bad := b.from, OK
	v := &n.row[0]
	n.w[i] = worker{alive: true}
	if b.c.runnable(v, i, true) {
		v.status = dead
		if v.led == inProgress && v.lease > 0 {
			bad = KilledLive
		}
	}
	b.add(i, 0, "does not know the key, parks the row if it is due", &n, bad)
}
