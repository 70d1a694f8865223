package model

// commit is the transaction of a transactional handler: its effect, and with it what the outcome writes.
func (b *steps) commit(i, r int) {
	c, s := b.c, &b.from
	u, v := &s.w[i].run[r], &s.row[r]
	ours := c.token == tokenNone || c.holds(v, u)
	may := true
	switch c.effect {
	case effectToken:
		may = ours && v.status == pending
	case effectPending:
		may = v.status == pending
	case effectAlone:
		may = ours
	}
	n := *s
	if !may {
		n.leave(c, i, r)
		b.add(i, r, "the handler succeeds; the claim is lost, its transaction is rolled back", &n, OK)
		return
	}
	if s.left.lostAnswers > 0 {
		m := *s
		m.left.lostAnswers--
		m.w[i].run[r].pc = unsure
		b.add(i, r, "the handler succeeds, its transaction is rolled back as it commits, which nobody says", &m, OK)
	}
	w := &n.row[r]
	w.effect++
	if c.effect == effectAlone {
		n.w[i].run[r].pc = succeeded
		b.add(i, r, "the handler succeeds, its effect is committed", &n, OK)
		return
	}
	bad := OK
	if !u.mine && w.effect == 1 {
		bad = StaleWrite
	}
	if w.status == pending && c.edit && u.snap != w.payload {
		bad = OldPayload
	}
	n.release(r)
	w.led, w.status, w.unf, w.crashes = done, delivered, 0, 0
	if s.left.lostAnswers > 0 {
		m := n
		m.left.lostAnswers--
		m.w[i].run[r].pc = unsure
		b.add(i, r, "the handler succeeds, its transaction is committed, and the answer is lost", &m, bad)
	}
	n.leave(c, i, r)
	b.add(i, r, "the handler succeeds: effect, done and delivered are committed", &n, bad)
}

// unsure is what comes after a commit that was not answered.
func (b *steps) unsure(i, r int) {
	c, n := b.c, b.from
	u, v := &n.w[i].run[r], &n.row[r]
	switch c.unsure {
	case unsureCut:
		b.outcomeOf(i, r, cut)
	case unsureSuccess:
		b.outcomeOf(i, r, succeeded)
	case unsureFailed:
		b.outcomeOf(i, r, failed)
	case unsureFailure:
		n.release(r)
		v.status = pending
		c.wake(&n, 1<<r, 0)
		n.leave(c, i, r)
		b.add(i, r, "takes the lost answer for a failure, puts the row back", &n, OK)
	case unsureDone:
		if c.holds(v, u) {
			n.release(r)
			v.led = done
			c.wake(&n, 1<<r, 0)
		}
		n.leave(c, i, r)
		b.add(i, r, "takes the lost answer for a failure, and marks the ledger done", &n, OK)
	case unsureNothing:
		n.leave(c, i, r)
		b.add(i, r, "takes the lost answer for a success", &n, OK)
	}
}
