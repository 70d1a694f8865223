package model

// queues: the outbox without a broker. Two relays turn one row into deliveries; it may be refused, and requeued.
func (t *table) queues() {
	t.addQueue(130, "outbox: two relays, refusals, requeue", func(c *queueConfig) { c.subs, c.requeues = 2, 1 })
	t.addQueue(131, "the same: retention, published again, a backfill", func(c *queueConfig) {
		c.subs, c.prunes, c.repubs, c.fills = 2, true, 1, true
	})
	t.addQueue(132, "enqueued in a transaction before the data's", func(c *queueConfig) { c.enqueue = enqueueBefore }, Ghost)
	t.addQueue(133, "enqueued in a transaction after the data's", func(c *queueConfig) { c.enqueue = enqueueAfter }, Lost)
	t.addQueue(134, "a relay looks only when nudged", func(c *queueConfig) { c.poll = false }, Orphan)
	t.addQueue(135, "marked done before the deliveries are committed", func(c *queueConfig) { c.mark = markFirst }, Lost)
	t.addQueue(136, "marked done in a transaction after, on condition", func(c *queueConfig) { c.mark = markAfter })
	t.addQueue(137, "the same, an event can have two deliveries", func(c *queueConfig) {
		c.mark, c.unique = markAfter, false
	}, DoubleDelivery)
	t.addQueue(138, "an event can have two deliveries, a backfill", func(c *queueConfig) { c.unique, c.fills = false, true }, DoubleDelivery)
	t.addQueue(139, "a delivery that is there is an error, a backfill", func(c *queueConfig) {
		c.conflict, c.fills, c.kind[0] = false, true, good
	}, AttemptsWrong)
	t.addQueue(140, "the relay wakes nobody, no sweep", func(c *queueConfig) { c.wakes = wakeNever }, Orphan)
	t.addQueue(141, "wakes in a transaction after, no sweep", func(c *queueConfig) { c.wakes = wakeAfter }, Orphan)
	t.addQueue(142, "wakes nobody, the sweep does", func(c *queueConfig) { c.wakes, c.sweep = wakeNever, true })
	t.addQueue(143, "rows not locked, and marked without a condition", func(c *queueConfig) { c.lock, c.recheck = false, false }, FinalOverwritten)
	t.addQueue(144, "rows not locked, marked on condition", func(c *queueConfig) { c.lock = false })
	t.addQueue(145, "a refusal is recorded without a condition", func(c *queueConfig) { c.recheck = false }, FinalOverwritten)
	t.addQueue(146, "requeued whatever the status is by then", func(c *queueConfig) {
		c.requeueIf, c.requeues = false, 2
	}, FinalOverwritten)
	t.addQueue(147, "retention deletes rows that are not done", func(c *queueConfig) { c.prunes, c.pruneDone = true, false }, Lost)
	old := func(c *queueConfig) { c.subs, c.lacks[1] = 2, 2 }
	t.addQueue(148, "a process that lacks a subscriber relays", old)
	t.addQueue(149, "the same, matching its own registry only", func(c *queueConfig) { old(c); c.table = false }, Lost)
}

// batches: two rows in one transaction of a relay.
func (t *table) batches() {
	two := func(more func(c *queueConfig)) func(c *queueConfig) {
		return func(c *queueConfig) {
			c.rows, c.kind = 2, [maxRows]int8{good, good}
			more(c)
		}
	}
	t.addQueue(150, "two rows, committed in any order, refusals, requeue", two(func(c *queueConfig) {
		c.kind, c.requeues, c.skew[1] = [maxRows]int8{flaky, flaky}, 1, 1
	}))
	t.addQueue(151, "two rows, looked for above the last id seen", two(func(c *queueConfig) { c.byStatus = false }), Orphan)
	t.addQueue(152, "two rows, one is always refused", two(func(c *queueConfig) { c.kind[1] = unwritable }))
	t.addQueue(153, "the same, not tried in parts", two(func(c *queueConfig) { c.kind[1], c.halves = unwritable, false }), Orphan)
	t.addQueue(154, "two rows, one cannot be decoded", two(func(c *queueConfig) { c.kind[1], c.halves = undecodable, false }))
	t.addQueue(155, "the same, not dead-lettered", two(func(c *queueConfig) {
		c.kind[1], c.halves, c.letters = undecodable, false, false
	}), Orphan)
}

// brokers: relays publish to a broker, whose consumers write the deliveries.
func (t *table) brokers() {
	broker := func(more func(c *queueConfig)) func(c *queueConfig) {
		return func(c *queueConfig) {
			c.broker, c.consumers = [maxRelays]bool{true, true}, 1
			more(c)
		}
	}
	over := func(c *queueConfig) { c.window = 0 }
	t.addQueue(156, "broker: window live, requeue", broker(func(c *queueConfig) { c.requeues = 1 }))
	t.addQueue(157, "broker: window over at once, two consumers", broker(func(c *queueConfig) { over(c); c.consumers, c.kind[0] = 2, good }))
	t.addQueue(158, "broker: window of 3 ticks, published again", broker(func(c *queueConfig) {
		c.window, c.prunes, c.repubs, c.kind[0] = 3, true, 1, good
	}))
	t.addQueue(159, "broker: a row that cannot be decoded", broker(func(c *queueConfig) { c.kind[0] = undecodable }))
	t.addQueue(160, "mark conditional on the status only", broker(func(c *queueConfig) { c.markIf = markProcessing }), StaleWrite)
	t.addQueue(161, "mark without a condition", broker(func(c *queueConfig) { c.markIf = markAny }), StaleWrite, FinalOverwritten, AttemptsWrong)
	t.addQueue(162, "no claim is taken over", broker(func(c *queueConfig) { c.reclaim = false }), Orphan)
	t.addQueue(163, "marked done before the broker's answer", broker(func(c *queueConfig) { c.ackFirst = false }), Lost)
	t.addQueue(164, "consumer acks before its commit", broker(func(c *queueConfig) { c.commitFirst = false }), Lost)
	t.addQueue(165, "window over, an event can have two deliveries", broker(func(c *queueConfig) { over(c); c.unique = false }), DoubleDelivery)
	t.addQueue(166, "window live, an event can have two deliveries", broker(func(c *queueConfig) { c.unique = false }), DoubleDelivery)
	t.addQueue(167, "a delivery that is there is an error to the consumer", broker(func(c *queueConfig) {
		c.subs, c.conflict, c.fills = 2, false, true
	}), Orphan)
	t.addQueue(168, "a transport failure spends an attempt", broker(func(c *queueConfig) { c.spends = true }), AttemptsWrong)
	t.addQueue(169, "a duplicate is taken for a failure", broker(func(c *queueConfig) { c.kind[0], c.dupFails = good, true }), AttemptsWrong)
	t.addQueue(170, "sending not bounded by the claim", broker(func(c *queueConfig) { c.bounded = false }), SentStale)
	t.addQueue(171, "clocks 1 apart, sending stops at the claim's end", broker(func(c *queueConfig) { c.skew[1] = 1 }), SentStale)
	t.addQueue(172, "clocks 1 apart, sending stops 1 before", broker(func(c *queueConfig) { c.skew[1], c.stop = 1, 1 }))
	t.addQueue(173, "claimed_at in whole ticks as the token, requeue", broker(func(c *queueConfig) {
		c.markIf, c.requeues, c.maxAtt = markTime, 1, 1
	}), StaleWrite)
	t.addQueue(174, "the same without a requeue", broker(func(c *queueConfig) { c.markIf = markTime }))
	t.addQueue(175, "a row without an id, a new one whenever it is sent", broker(func(c *queueConfig) { c.freshIDs = true }), DoubleDelivery)
	t.addQueue(176, "consumer wakes nobody, no sweep", broker(func(c *queueConfig) { c.wakes = wakeNever }), Orphan)
	t.addQueue(177, "consumer matches its own registry only", broker(func(c *queueConfig) {
		c.subs, c.lacks[0], c.table = 2, 2, false
	}), Lost)
	t.addQueue(178, "one relay with a broker, one without", broker(func(c *queueConfig) { over(c); c.broker[1] = false }))
	t.addQueue(179, "a row left in processing, relays without a broker", func(c *queueConfig) { c.leftover = true })
	t.addQueue(180, "the same, no claim is taken over", func(c *queueConfig) { c.leftover, c.reclaim = true, false }, Orphan)
	t.addQueue(181, "claimed as read before, without a condition", broker(func(c *queueConfig) { c.claimIf = false }), SentStale, FinalOverwritten)
	t.addQueue(182, "claimed_at in whole ticks, not set by a takeover", broker(func(c *queueConfig) {
		c.markIf, c.restamp = markTime, false
	}), StaleWrite)
	t.addQueue(183, "a row left in processing without claimed_at", func(c *queueConfig) { c.leftover, c.bare = true, true })
	t.addQueue(184, "the same, which is taken for a claim that lasts", func(c *queueConfig) {
		c.leftover, c.bare, c.noStamp = true, true, false
	}, Orphan)
}
