package model

// transactional: the handler's effect, the ledger's done and the row's delivered are one commit.
func (t *table) transactional() {
	txn := func(more func(c *config)) func(c *config) {
		return func(c *config) {
			c.txn, c.crashes = true, 1
			more(c)
		}
	}
	t.add(190, "transactional: crash, redelivery, lost answer", txn(func(c *config) { c.lostAnswers = 1 }))
	t.add(191, "transactional: sweep, snooze, shutdown", txn(func(c *config) { c.sweepOn, c.snoozes, c.shutdown = true, 1, true }))
	t.add(192, "transactional: clocks 2 apart, margin 2", txn(func(c *config) {
		c.skew[1], c.margin, c.lostAnswers, c.redels, c.maxAtt = 2, 2, 1, 0, 1
	}))
	t.add(193, "transactional: no renewals, lost answers", txn(func(c *config) { c.renew, c.lostAnswers, c.redels = false, 2, 0 }))
	t.add(194, "transactional: a delivered row redelivered", txn(func(c *config) { c.anews, c.lostAnswers, c.redels = 1, 1, 0 }))
	t.add(195, "transactional: parked, redelivered with an edit", txn(func(c *config) { c.parks, c.edit, c.crashes = 1, true, 0 }))
	t.add(196, "transactional: one process, two jobs, lost answers", txn(func(c *config) {
		c.oneProcess, c.lostAnswers, c.redels = true, 1, 0
	}))
	t.add(197, "effect committed before the outcome", txn(func(c *config) { c.effect = effectAlone }), EffectTwice)
	t.add(198, "effect's commit without a condition", txn(func(c *config) { c.effect = effectLoose }), EffectTwice, StaleWrite)
	t.add(199, "effect's commit conditional on the row only", txn(func(c *config) {
		c.effect, c.parks, c.edit = effectPending, 1, true
	}), StaleWrite, OldPayload)
}

// unanswered: a transactional handler's commit is not answered.
func (t *table) unanswered() {
	lost := func(unsure int8, more func(c *config)) func(c *config) {
		return func(c *config) {
			c.txn, c.unsure, c.lostAnswers, c.crashes, c.redels = true, unsure, 1, 0, 0
			more(c)
		}
	}
	asIs := func(*config) {}
	t.add(200, "lost answer taken for a success, row marked", lost(unsureSuccess, asIs), EffectMissing)
	t.add(201, "lost answer taken for a failure, no condition", lost(unsureFailure, asIs), FinalOverwritten, Overlap)
	t.add(202, "lost answer taken for a failure, ledger done", lost(unsureDone, asIs), EffectMissing)
	t.add(203, "lost answer taken for a success, nothing done", lost(unsureNothing, asIs))
	t.add(204, "the same, no check for lost claims", lost(unsureNothing, func(c *config) { c.lostCheck = false }), Orphan)
	t.add(205, "lost answer taken for a failure, on condition", lost(unsureFailed, asIs))
}
