package model

// claiming is a transaction of a claim: what it has done so far to n.
type claiming struct {
	c       *config
	i       int
	n       *state
	granted int8          // a set of rows
	later   [maxRows]int8 // when a row is woken again, plus 1; 0: not
	plan    [maxRows]string
	bad     Violation
}

func (t *claiming) claimRows(ids int8, snaps [maxRows]int8) {
	for r, snap := range snaps {
		if ids>>r&1 == 1 {
			t.row(r, snap)
		}
	}
}

// row claims one row, or decides what becomes of it.
func (t *claiming) row(r int, snap int8) {
	c, v := t.c, &t.n.row[r]
	ours := t.ours(r)
	if ours && c.own == ownDrop {
		t.plan[r] = "its own process runs it: nothing to do"
		return
	}
	if c.recheck && !c.runnable(v, t.i, c.pauseIn == pauseInClaim) || ours && c.own == ownLook || !t.free(v) {
		t.left(r)
		return
	}
	bad := OK
	switch {
	case v.status != pending || !c.due(v, t.i):
		bad = NotDue
	case v.paused:
		bad = RanPaused
	}
	crashes := v.crashes
	if c.limit > 0 && v.led == inProgress && !v.nobody {
		crashes++ // the run before ended without an outcome, as far as anyone can tell
	}
	if c.ignorant(t.i) {
		t.unknown(r, crashes)
		return
	}
	v.crashes = crashes
	if c.limit > 0 {
		v.unf++
		if !c.unfCounter {
			v.runs++
		}
	}
	if c.limit > 0 && t.crasher(v) {
		v.status, v.unf = dead, 0
		t.n.release(r)
		t.plan[r] = "parked by the crash limit"
		if v.crashes <= c.limit {
			bad = NotACrasher
		}
		t.bad = max(t.bad, bad)
		return
	}
	u := t.take(r)
	if c.fromSnap {
		u.snap = snap
	}
	t.bad = max(t.bad, bad)
	t.grant(r, "claimed, the handler starts")
}

// free: there is no claim, or it may be taken over.
func (t *claiming) free(v *row) bool {
	return v.led == free || v.led == inProgress && v.lease+t.c.margin <= t.c.skew[t.i]
}

// ours: a run of the row is in the table of this process.
func (t *claiming) ours(r int) bool {
	for j := range t.c.procs {
		if j != t.i && t.c.proc(j) == t.c.proc(t.i) && t.n.w[j].run[r].tabled() {
			return true
		}
	}
	return false
}

func (t *claiming) crasher(v *row) bool {
	if t.c.unfCounter {
		return v.unf-1 > t.c.limit
	}
	return v.runs-1-v.att > t.c.limit
}

// take writes the claim into the ledger.
func (t *claiming) take(r int) *run {
	c, v := t.c, &t.n.row[r]
	now := c.skew[t.i]
	v.led, v.lease, v.nobody = inProgress, c.clamp(now+lease), false
	for j := range t.n.w {
		o := &t.n.w[j].run[r]
		o.mine = false
		o.eq = o.pc >= running && o.pc < leaving && o.tok > c.low() && o.tok == now
	}
	u := &t.n.w[t.i].run[r]
	*u = run{tok: now, eq: true, mine: true, lease: v.lease}
	return u
}

// grant starts the handler of a claimed row.
func (t *claiming) grant(r int, what string) {
	c, v, u := t.c, &t.n.row[r], &t.n.w[t.i].run[r]
	t.plan[r] = what
	t.granted |= 1 << r
	u.pc, u.lease = running, v.lease
	v.want = false
	if c.edit {
		u.snap = v.payload
	}
	switch {
	case t.bad != OK:
	case v.paused:
		t.bad = RanPaused
	case c.limit > 0 && v.crashes > c.limit:
		t.bad = CrashesForgotten
	}
	for j := range c.procs {
		if o := &t.n.w[j].run[r]; j != t.i && c.proc(j) == c.proc(t.i) && (o.pc == running || o.pc == stuck) && !o.outside {
			t.bad = Overlap
		}
	}
}

// takeBack gives a claim back whose start did not happen.
func (t *claiming) takeBack(r int) {
	t.n.release(r)
	t.n.w[t.i].run[r] = run{}
	if v := &t.n.row[r]; v.status == pending && t.c.limit > 0 && t.c.backStarts {
		v.unf--
		if !t.c.unfCounter {
			v.runs--
		}
	}
}

// unknown judges a row whose key this process does not know, under a claim that is gone with it.
func (t *claiming) unknown(r int, crashes int8) {
	c, v := t.c, &t.n.row[r]
	t.n.release(r)
	v.crashes = crashes
	if c.elsewhere && c.elseCheck {
		if !c.elseKeeps {
			v.unf = 0
		}
		v.next = c.skew[t.i] + backoff
		t.later[r] = max(v.next, 0) + 1
		t.plan[r] = "the key is another process's: put back"
		return
	}
	v.status = dead
	t.plan[r] = "the key is not known: parked"
	if c.elsewhere {
		t.bad = ParkedKnown
	}
}

// left decides about a row that was asked for and not granted.
func (t *claiming) left(r int) {
	c, v := t.c, &t.n.row[r]
	pause := c.pauseIn == pauseInClaim
	switch {
	case c.soon(v, t.i, pause):
		t.later[r] = max(v.next-c.skew[t.i], 0) + 1
		t.plan[r] = "early: put back for the due time"
	case !c.runnable(v, t.i, pause):
		t.plan[r] = "nothing to do"
	case v.led == done:
		t.n.w[t.i].run[r] = run{pc: sawDone}
		t.plan[r] = "the ledger says done"
	case v.led == inProgress && t.ours(r):
		t.plan[r] = "its own process runs it: nothing to do"
	case v.led == inProgress:
		t.later[r] = max(v.lease+c.margin, 0) + 1
		t.plan[r] = "held: put back for the end of the claim"
	default:
		t.later[r] = 1 + 1 // a moment later
		t.plan[r] = "free: woken again"
	}
}
