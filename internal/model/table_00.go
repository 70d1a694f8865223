package model

// whole: the protocol as it is, with one thing after the other that may happen to it.
func (t *table) whole() {
	t.add(0, "as it is: crashes, redelivery, lost answers", func(c *config) { c.lostAnswers = 1 })
	t.add(1, "as it is: the same with the sweep", func(c *config) { c.lostAnswers, c.sweepOn, c.crashes = 1, true, 1 })
	t.add(2, "as it is: snooze, shutdown, crash", func(c *config) { c.snoozes, c.shutdown, c.crashes = 1, true, 1 })
	t.add(3, "as it is: claims for a job that is gone, crash", func(c *config) { c.gone, c.crashes = 1, 1 })
	t.add(4, "as it is: payload edited on redelivery", func(c *config) { c.edit, c.crashes = true, 1 })
	t.add(5, "as it is: clocks 2 apart, margin 2, lost answers", func(c *config) {
		c.skew[1], c.margin, c.lostAnswers, c.crashes, c.redels = 2, 2, 1, 1, 0
	})
}

func (t *table) claims() {
	t.add(10, "row read before the claim only, attempts from there", func(c *config) {
		c.recheck, c.token, c.fromSnap, c.sweepOn, c.crashes = false, tokenTime, true, true, 1
	}, NotDue, AttemptsWrong)
	t.add(11, "row read before the claim only", func(c *config) {
		c.recheck, c.token, c.sweepOn, c.crashes = false, tokenTime, true, 1
	}, NotDue)
	t.add(12, "outcome and renewal without a token", func(c *config) { c.token = tokenNone }, StaleWrite, StaleRenewal)
	t.add(13, "token without the owner, clocks 1 apart, lost answers", func(c *config) {
		c.token, c.lostAnswers, c.crashes, c.shutdown = tokenTime, 1, 0, true
		c.skew[1], c.margin = -1, 1
	}, StaleWrite, StaleRenewal)
	t.add(14, "token without the owner, equal clocks", func(c *config) { c.token = tokenTime })
	t.add(15, "token without the owner, lost answers", func(c *config) {
		c.token, c.lostAnswers, c.crashes, c.shutdown = tokenTime, 1, 0, true
	}, StaleWrite, StaleRenewal)
	t.add(30, "unknown key judged before the claim", func(c *config) { c.unkClaim, c.w1unknown = false, true }, KilledLive)
	t.add(31, "unknown key judged under a claim", func(c *config) { c.w1unknown = true })
}

func (t *table) clocks() {
	apart := func(skew, margin int8, more func(c *config)) func(c *config) {
		return func(c *config) {
			c.skew[1], c.margin, c.crashes, c.redels = skew, margin, 1, 0
			more(c)
		}
	}
	asIs := func(*config) {}
	t.add(20, "clocks 1 apart, no margin", apart(1, 0, asIs), Overlap)
	t.add(21, "clocks 2 apart, margin 2", apart(2, 2, asIs))
	t.add(22, "clocks 2 apart, margin 1, owner stops 1 early", apart(2, 1, func(c *config) { c.stop = 1 }))
	t.add(23, "clocks 2 apart, margin 1", apart(2, 1, asIs), Overlap)
	t.add(24, "a clock 2 behind, early wake-up dropped, no sweep", apart(-2, 2, func(c *config) { c.putBack = false }), Orphan)
	t.add(25, "a clock 2 behind, early wake-up put back", apart(-2, 2, asIs))
	t.add(26, "as 24 with the sweep: late, not lost", apart(-2, 2, func(c *config) { c.putBack, c.sweepOn = false, true }))
}

func (t *table) crashes() {
	t.add(40, "crashes counted as runs less attempts, snoozes", func(c *config) {
		c.unfCounter, c.snoozes, c.limit, c.crashes = false, 3, 2, 1
	}, NotACrasher)
	t.add(41, "the same, runs not reset by a redelivery", func(c *config) {
		c.unfCounter, c.redelReset, c.limit, c.crashes, c.redels = false, false, 3, 0, 2
	}, NotACrasher)
	t.add(42, "crashes counted as runs without an outcome", func(c *config) { c.snoozes, c.limit = 2, 1 })
}

func (t *table) repairs() {
	t.add(50, "no sweep, no rescue, no check for lost claims", func(c *config) { c.rescue, c.lostCheck = false, false }, Orphan)
	t.add(51, "check for lost claims only: killed before the claim", func(c *config) { c.rescue = false }, Orphan)
	t.add(52, "check for lost claims, and the sweep", func(c *config) { c.rescue, c.sweepOn = false, true })
	t.add(53, "shutdown's outcome wakes nobody, no sweep", func(c *config) {
		c.cutWakes, c.shutdown, c.crashes = false, true, 0
	}, Orphan)
	t.add(60, "claim for a job that is gone, kept and renewed", func(c *config) {
		c.giveBack, c.renewOrphan, c.sweepOn, c.gone, c.crashes = false, true, true, 1, 0
	}, Orphan)
	t.add(61, "claim's repeat does not know its own, not renewed", func(c *config) { c.ownRepeat, c.lostAnswers = false, 1 })
	t.add(62, "the same, and the crash limit counts it", func(c *config) {
		c.ownRepeat, c.lostAnswers, c.limit, c.crashes, c.redels = false, 2, 1, 0, 0
	}, NotACrasher)
	t.add(63, "renewal without the token", func(c *config) { c.renewLoose = true }, StaleRenewal)
}

func (t *table) operators() {
	t.add(70, "delivered row redelivered, ledger stays done", func(c *config) {
		c.againForces, c.anews, c.crashes, c.redels = false, 1, 1, 0
	}, Swallowed)
	t.add(71, "delivered row redelivered, ledger's done deleted", func(c *config) { c.anews, c.crashes, c.redels = 1, 1, 0 })
	t.add(72, "the same, id published again, mark without guard", func(c *config) {
		c.anews, c.repubs, c.doneGuard, c.crashes, c.redels = 1, 1, false, 0, 0
	}, Swallowed)
	t.add(73, "the same with the guard", func(c *config) { c.anews, c.repubs, c.crashes, c.redels = 1, 1, 1, 0 })
}
