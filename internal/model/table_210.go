package model

// inboxes: the receiving half of a bus. A message is handed out twice at most; the service's database goes away and comes back.
func (t *table) inboxes() {
	kind := func(k int8, more ...func(c *inboxConfig)) func(c *inboxConfig) {
		return func(c *inboxConfig) {
			c.kind = k
			for _, f := range more {
				f(c)
			}
		}
	}
	own := func(c *inboxConfig) { c.sender = true }
	t.addInbox(210, "inbox: two consumers, a stop", kind(good, func(c *inboxConfig) { c.stops = 1 }))
	t.addInbox(211, "inbox: refusals, requeue, stops, three deliveries", kind(flaky, func(c *inboxConfig) { c.stops, c.attempts = 2, 3 }))
	t.addInbox(212, "inbox: before its tenant, requeue, a stop", kind(untimely, func(c *inboxConfig) { c.stops = 1 }))
	t.addInbox(213, "inbox: a message that cannot be decoded", kind(undecodable))
	t.addInbox(214, "inbox: the service's own row, refusals, requeue", kind(flaky, own))
	t.addInbox(215, "inbox: the service's own row, before its tenant", kind(untimely, own))
	t.addInbox(216, "inbox: acked before the commit", kind(good, func(c *inboxConfig) { c.commitFirst = false }), Lost)
	t.addInbox(217, "inbox: refused while the database is away", kind(good, func(c *inboxConfig) { c.keeps = false }), AttemptsWrong)
	t.addInbox(218, "inbox: kept meanwhile, the broker not told", kind(good, func(c *inboxConfig) { c.extends = false }), AttemptsWrong)
	t.addInbox(219, "inbox: ended before the letter is stored", kind(flaky, func(c *inboxConfig) { c.letterFirst = false }), Lost)
	t.addInbox(220, "inbox: what can never be captured is acked", kind(untimely, func(c *inboxConfig) { c.forGood = false }), Lost)
	t.addInbox(221, "inbox: nobody learns of the last delivery", kind(flaky, func(c *inboxConfig) { c.advises = false }), Orphan)
	t.addInbox(222, "inbox: advisory acked before the letter is stored", kind(flaky, func(c *inboxConfig) { c.adviceFirst = false }), Lost)
	t.addInbox(223, "inbox: a message can have two letters", kind(flaky, func(c *inboxConfig) { c.once = false }), TwoLetters)
	t.addInbox(224, "inbox: what was requeued is buried again", kind(flaky, func(c *inboxConfig) { c.stays = false }), FinalOverwritten)
	t.addInbox(225, "inbox: a letter is requeued to the sink", kind(flaky, func(c *inboxConfig) { c.requeue = requeueSink }), Lost)
	t.addInbox(226, "inbox: a letter is marked, and captured after", kind(flaky, func(c *inboxConfig) { c.requeue = requeueMark }), Lost)
	t.addInbox(227, "inbox: its own row is in the way of the letter", kind(flaky, own, func(c *inboxConfig) { c.own = false }), Orphan)
	t.addInbox(228, "inbox: the relay's mark without a condition", kind(flaky, own, func(c *inboxConfig) { c.markOwn = false }), FinalOverwritten)
	t.addInbox(229, "inbox: an event can have two deliveries", kind(good, func(c *inboxConfig) { c.unique = false }), DoubleDelivery)
	t.addInbox(230, "inbox: the broker gives up first", kind(flaky, func(c *inboxConfig) { c.earlier = true }), AttemptsWrong)
}
