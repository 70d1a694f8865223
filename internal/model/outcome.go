package model

// outcome is the transaction that writes what became of worker i's run of row r.
func (b *steps) outcome(i, r int) { b.outcomeOf(i, r, b.from.w[i].run[r].pc) }

// outcomeOf is outcome of a run that ended as pc says.
func (b *steps) outcomeOf(i, r int, pc int8) {
	c, s := b.c, &b.from
	n, u := *s, s.w[i].run[r]
	if !c.holds(&s.row[r], &u) {
		n.leave(c, i, r)
		b.add(i, r, "outcome: the claim is lost, nothing is written", &n, OK)
		return
	}
	bad := OK
	switch {
	case u.twice && s.row[r].led == free: // nobody has claimed it since
		bad = AppliedTwice
	case !u.mine:
		bad = StaleWrite
	}
	name := ""
	v := &n.row[r]
	n.release(r)
	wasPending := v.status == pending || !c.rowGuard
	forgiven := wasPending && pc != lost // the run has an outcome: no crash
	if forgiven {
		v.unf, v.crashes = 0, 0
	}
	switch pc {
	case succeeded:
		name = "outcome: delivered"
		v.led = done
		if wasPending {
			v.status = delivered
			if c.edit && u.snap != v.payload {
				bad = max(bad, OldPayload)
			}
		}
	case failed:
		name = "outcome: failed"
		if wasPending {
			bad = max(bad, c.failure(&n, i, r, u.snap))
		}
	case snoozed:
		name = "outcome: snoozed"
		if wasPending {
			v.next = c.skew[i] + 1
			c.wake(&n, 1<<r, v.next)
		}
	case cut:
		name = "outcome: cut by shutdown"
		if wasPending && c.cutWakes {
			c.wake(&n, 1<<r, 0)
		}
	case lost:
		name = "outcome: the claim was lost, or seemed to be"
		if wasPending {
			c.lostRun(&n, r)
		}
	}
	if s.left.lostAnswers > 0 && !u.twice {
		m := n
		m.left.lostAnswers--
		m.w[i].run[r].twice = true // it will ask again; its claim is gone
		b.add(i, r, name+", and the answer is lost", &m, bad)
	}
	n.leave(c, i, r)
	b.add(i, r, name, &n, bad)
}

func (c *config) failure(n *state, i, r int, snap int8) Violation {
	v := &n.row[r]
	v.fails++
	v.att++
	if c.fromSnap {
		v.att = snap + 1
	}
	if v.att != v.fails {
		return AttemptsWrong
	}
	if v.att >= c.maxAtt {
		v.status = dead
		return OK
	}
	v.next = c.skew[i] + backoff
	if c.failWakes {
		c.wake(n, 1<<r, v.next)
	}
	return OK
}

// lostRun leaves the row to be run again, at once, its start counted as after a crash.
func (c *config) lostRun(n *state, r int) {
	v := &n.row[r]
	if c.limit > 0 {
		v.crashes++
		if !c.lostCounts {
			v.unf = 0
		}
	}
	if c.lostWakes {
		c.wake(n, 1<<r, 0)
	}
}

// leave ends a run; where something else looks into its process's table, it leaves that a moment later.
func (s *state) leave(c *config, i, r int) {
	if c.oneProcess && !s.w[i].run[r].outside {
		s.w[i].run[r] = run{pc: leaving}
		return
	}
	s.end(i, r)
}
