package model

// pauses: an operator pauses the row's subscriber, and resumes it.
func (t *table) pauses() {
	paused := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.pauses, c.redels, c.crashes = 1, 0, 1
			more(c)
		}
	}
	t.add(80, "pause and resume: crash, lost answer", paused(func(c *config) { c.lostAnswers, c.peek = 1, true }))
	t.add(81, "claim ignores the pause", paused(func(c *config) { c.pauseIn = pauseNowhere }), RanPaused)
	t.add(82, "pause looked at before the claim only", paused(func(c *config) {
		c.pauseIn, c.peek = pauseBefore, true
	}), RanPaused)
	t.add(83, "claim's repeat ignores the pause", paused(func(c *config) { c.pauseRep, c.lostAnswers = false, 1 }), RanPaused)
	t.add(84, "resuming wakes nobody, no sweep", paused(func(c *config) { c.resume = resumeNothing }), Orphan)
	t.add(85, "resuming wakes nobody, the sweep does", paused(func(c *config) { c.resume, c.sweepOn = resumeNothing, true }))
	t.add(86, "resume's wake-ups before the pause is lifted", paused(func(c *config) { c.resume = resumeBefore }), Orphan)
	t.add(87, "resuming wakes due rows only, its clock behind", paused(func(c *config) {
		c.resume, c.resumeSkew = resumeDue, -1
	}), Orphan)
	t.add(88, "resuming wakes all pending rows, its clock behind", paused(func(c *config) { c.resumeSkew = -1 }))
	t.add(89, "pause and resume: crash limit", paused(func(c *config) { c.pauses, c.limit, c.crashes = 2, 1, 2 }))
}

// jobs: two rows that begin in one wake-up.
func (t *table) jobs() {
	two := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.rows, c.redels, c.crashes, c.maxAtt = 2, 0, 1, 1
			more(c)
		}
	}
	// With River's rescue, or the sweep, what is forgotten is late by an hour, or by some minutes.
	late := func(c *config) { c.slots, c.rescue, c.killLate, c.peek = 1, false, true, true }
	t.add(90, "two rows, one slot: crash after the claim, no rescue", two(late))
	t.add(91, "rest handed on after the claim's transaction", two(func(c *config) { late(c); c.handOn = handAfter }), Orphan)
	t.add(92, "rest forgotten", two(func(c *config) { late(c); c.handOn = handForgotten }), Orphan)
	t.add(93, "two rows, two slots: crash", two(func(c *config) { late(c); c.slots = 2 }))
	t.add(94, "two rows, two slots: lost answer", two(func(c *config) { c.lostAnswers, c.crashes = 1, 0 }))
	t.add(95, "two rows, one of them paused and resumed", two(func(c *config) { c.pauses, c.crashes = 1, 0 }))
	t.add(96, "repeat takes one claim of its own for all of its rows", two(func(c *config) {
		c.lostAnswers, c.crashes, c.repeatEach = 1, 0, false
	}), Overlap)
}

// processes: two jobs of one process, which have a table of its runs in common, and in the last two another process.
func (t *table) processes() {
	one := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.oneProcess, c.redels, c.crashes = true, 0, 1
			more(c)
		}
	}
	t.add(100, "one process, two jobs, with the sweep", one(func(c *config) { c.sweepOn, c.lostAnswers = true, 1 }))
	t.add(101, "a process takes over its own claim", one(func(c *config) { c.own = ownTakeover }), Overlap)
	t.add(102, "wake-up dropped for a run with its outcome, no sweep", one(func(c *config) {
		c.own, c.lostAnswers = ownDrop, 1
	}), Orphan)
	t.add(103, "the same, woken again when the claim is not held", one(func(c *config) { c.lostAnswers = 1 }))
	zombie := func(c *config) { c.procs, c.stucks, c.lastGone, c.maxAtt = 3, 1, true, 1 }
	t.add(104, "a handler that never returns, its claim lost", one(zombie))
	t.add(105, "the same, its run stays in the process's table", one(func(c *config) { zombie(c); c.lostLeaves = false }), Orphan)
}

// cutRuns: runs and claims that end without having run to their end.
func (t *table) cutRuns() {
	limited := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.limit, c.redels, c.crashes = 1, 0, 1
			more(c)
		}
	}
	t.add(110, "runs that lost their claim count like crashes", limited(func(*config) {}))
	t.add(111, "a run that lost its claim resets the crash count", limited(func(c *config) {
		c.lostCounts = false
	}), CrashesForgotten)
	t.add(112, "a run that lost its claim wakes nobody", limited(func(c *config) { c.lostWakes, c.limit = false, 0 }), Orphan)
	t.add(113, "a key that another process knows is put back", limited(func(c *config) {
		c.w1unknown, c.elsewhere, c.crashes = true, true, 2
	}))
	t.add(114, "the same, the crash count reset", limited(func(c *config) {
		c.w1unknown, c.elsewhere, c.elseKeeps, c.crashes = true, true, false, 2
	}), CrashesForgotten)
	t.add(115, "the same, parked", limited(func(c *config) {
		c.w1unknown, c.elsewhere, c.elseCheck = true, true, false
	}), ParkedKnown)
	t.add(116, "claims whose answer was lost are given back", limited(func(c *config) { c.lostAnswers, c.gone = 1, 1 }))
	t.add(117, "the same, waking nobody", limited(func(c *config) { c.lostAnswers, c.backWakes, c.limit = 1, false, 0 }), Orphan)
	t.add(118, "the same, the start stays counted", limited(func(c *config) {
		c.lostAnswers, c.gone, c.backStarts, c.crashes = 1, 2, false, 0
	}), NotACrasher)
	t.add(119, "outcome without a token, lost answers", limited(func(c *config) {
		c.token, c.lostAnswers, c.limit = tokenNone, 1, 0
	}), AppliedTwice, StaleWrite, StaleRenewal)
	t.add(124, "a failure's outcome wakes nobody", limited(func(c *config) {
		c.failWakes, c.limit, c.crashes = false, 0, 0
	}), Orphan)
}

// parks: a row becomes dead while it is run, as its tenant is removed.
func (t *table) parks() {
	parked := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.parks, c.redels, c.crashes, c.edit = 1, 1, 0, true
			more(c)
		}
	}
	t.add(120, "parked while it runs, redelivered with an edit", parked(func(*config) {}))
	t.add(121, "neither deletes the claim", parked(func(c *config) { c.parkForgets, c.redelForgets = false, false }), OldPayload)
	t.add(122, "nor asks the outcome whether the row is pending", parked(func(c *config) {
		c.parkForgets, c.redelForgets, c.rowGuard = false, false, false
	}), OldPayload, FinalOverwritten)
	t.add(123, "as 120: the handler runs on until it is found lost", parked(func(c *config) { c.countVoid = true }), Overlap)
}
