package model

// inboxSteps collects the edges that leave a state of the receiving half. It is reused.
type inboxSteps struct {
	c    *inboxConfig
	from inboxState
	out  []edge[inboxState]
}

func (b *inboxSteps) initial() inboxState { return b.c.initial() }

func (b *inboxSteps) canonical(s *inboxState) { b.c.canonical(s) }

func (b *inboxSteps) settled(s *inboxState) bool { return b.c.settled(s) }

// step adds an edge; change makes the state that it leads to.
func (b *inboxSteps) step(who, name string, change func(n *inboxState)) *edge[inboxState] {
	n := b.from
	change(&n)
	b.out = append(b.out, edge[inboxState]{who: who, row: -1, name: name, to: n})
	return &b.out[len(b.out)-1]
}

// all returns the edges that leave s.
func (b *inboxSteps) all(s *inboxState) []edge[inboxState] {
	b.from, b.out = *s, b.out[:0]
	b.broker()
	b.database()
	for i := range s.hand {
		b.consumer(i)
	}
	b.adviser()
	b.operator()
	b.relay()
	for i := range b.out {
		b.c.check(&b.from, &b.out[i])
	}
	return b.out
}

// broker hands the message out, and again when it has waited: but not while who has it extends.
func (b *inboxSteps) broker() {
	s := &b.from
	if s.msg == inStream {
		for i := range s.hand {
			if s.hand[i].pc == empty {
				b.step(consumerNames[i], "receives the message", func(n *inboxState) {
					n.msg = out
					n.delivered++
					n.hand[i] = hand{pc: got, n: n.delivered}
				})
			}
		}
	}
	h := s.holder()
	if s.msg == out && (h == nil || h.still || !b.c.extends) {
		b.step("", "the broker has waited long enough", func(n *inboxState) {
			if h == nil || h.still {
				n.blame(n.delivered)
			}
			b.back(n)
		})
	}
}

// back has the message come again, or no more.
func (b *inboxSteps) back(n *inboxState) {
	n.msg = inStream
	if n.delivered >= b.c.handedOut() {
		n.msg, n.advice = exhausted, b.c.advises
	}
}

// database goes away and comes back; and what an untimely event needs comes.
func (b *inboxSteps) database() {
	if b.from.away {
		b.step("", "the service's database is back", func(n *inboxState) { n.away = false })
	} else {
		b.step("", "the service's database is away", func(n *inboxState) { n.away = true })
	}
	if b.c.kind == untimely && !b.from.came {
		b.step("", "its tenant comes", func(n *inboxState) { n.came = true })
	}
}

// consumer adds what consumer i may do next. An answer that is not heard leaves it with nothing in its hands, as being killed
// does.
func (b *inboxSteps) consumer(i int) {
	c, s := b.c, &b.from
	h := s.hand[i]
	who := consumerNames[i]
	if h.pc == empty {
		return
	}
	b.step(who, "is killed, or its answer is lost", func(n *inboxState) { n.hand[i] = hand{} })
	if h.still {
		b.step(who, "goes on", func(n *inboxState) { n.hand[i].still = false })
		return
	}
	if s.stops > 0 {
		b.step(who, "stands still", func(n *inboxState) { n.hand[i].still, n.stops = true, n.stops-1 })
	}
	to := func(pc int8) func(n *inboxState) {
		return func(n *inboxState) { n.hand[i].pc = pc }
	}
	end := func(n *inboxState) { n.msg, n.hand[i] = ended, hand{} } // an advisory of it stays
	nak := func(n *inboxState) {
		if h.n != n.delivered { // it stood still: the broker takes this for the answer to the last delivery
			n.blame(n.delivered)
		}
		if n.hand[i] = (hand{}); n.msg == out {
			b.back(n)
		}
	}
	switch h.pc {
	case got:
		if !c.commitFirst {
			b.step(who, "acks, has committed nothing yet", func(n *inboxState) {
				end(n)
				n.hand[i] = hand{pc: ackedNow, n: h.n}
			})
			return
		}
		b.receive(i)
	case acking:
		b.step(who, "acks", end)
	case nacking:
		b.step(who, "refuses the message, which comes again", nak)
	case giving:
		if !c.letterFirst {
			b.step(who, "ends the message, has stored no letter yet", func(n *inboxState) {
				end(n)
				n.hand[i] = hand{pc: endedNow, n: h.n}
			})
			return
		}
		b.bury(who, to(ending), true)
	case ending:
		b.step(who, "ends the message", end)
	case ackedNow:
		if !s.away {
			b.step(who, "commits the deliveries", func(n *inboxState) { c.captured(n); n.hand[i] = hand{} })
		}
	case endedNow:
		b.bury(who, func(n *inboxState) { n.hand[i] = hand{} }, false)
	}
	if h.pc == got && s.away && !c.keeps {
		b.step(who, "refuses the message, its database is away", nak)
	}
}

// receive is the transaction that writes the deliveries.
func (b *inboxSteps) receive(i int) {
	c, s, who, n := b.c, &b.from, consumerNames[i], b.from.hand[i].n
	if s.away {
		return
	}
	may, refused, never := c.takes(s)
	if may {
		b.step(who, "commits the deliveries", func(n *inboxState) { c.captured(n); n.hand[i].pc = acking })
		b.step(who, "commits the deliveries, and the answer is lost", c.captured)
	}
	switch {
	case never && !c.forGood:
		b.step(who, "cannot capture it, and takes that for done", func(n *inboxState) { n.hand[i].pc = acking })
	case never:
		b.step(who, "cannot capture it", func(n *inboxState) { n.hand[i].pc = giving })
	case refused:
		b.step(who, "is refused by the database", func(to *inboxState) {
			to.blame(n)
			to.hand[i].pc = nacking
			if n >= c.attempts {
				to.hand[i].pc = giving
			}
		})
	}
}

// bury stores the letter, after which who is where stored says; again, if it is done again when the answer is lost.
func (b *inboxSteps) bury(who string, stored func(n *inboxState), again bool) {
	n := b.from
	if b.from.away || !b.c.bury(&n) {
		return
	}
	b.step(who, "stores the letter", func(n *inboxState) { b.c.bury(n); stored(n) })
	if again {
		b.step(who, "stores the letter, and the answer is lost", func(n *inboxState) { b.c.bury(n) })
	}
}

// adviser is a process that reads advisories.
func (b *inboxSteps) adviser() {
	const who = "who reads advisories"
	s := &b.from
	if s.adviser != empty {
		b.step(who, "is killed, or its answer is lost", func(n *inboxState) { n.adviser = empty })
	}
	switch {
	case s.adviser == ending:
		b.step(who, "acks the advisory", func(n *inboxState) { n.advice, n.adviser = false, empty })
	case s.adviser == endedNow:
		b.bury(who, func(n *inboxState) { n.adviser = empty }, false)
	case s.advice && !b.c.adviceFirst:
		b.step(who, "acks the advisory, has stored no letter yet", func(n *inboxState) { n.advice, n.adviser = false, endedNow })
	case s.advice:
		b.bury(who, func(n *inboxState) { n.adviser = ending }, true)
	}
}

// operator requeues a letter; what cannot be captured stays one.
func (b *inboxSteps) operator() {
	const who = "an operator"
	c, s := b.c, &b.from
	if s.marked && !s.away {
		b.step(who, "captures the event", func(n *inboxState) { n.marked = false; c.captured(n) })
	}
	if s.marked {
		b.step(who, "is killed", func(n *inboxState) { n.marked = false })
	}
	may, _, _ := c.takes(s)
	if s.status != lettered || s.requeues == 0 || s.away || !may {
		return
	}
	again := func(status int8, more func(n *inboxState)) {
		b.step(who, "requeues", func(n *inboxState) { n.requeues--; n.status = status; more(n) }).final = true
	}
	switch c.requeue {
	case requeueHere:
		again(requeuedRow, c.captured)
	case requeueSink:
		again(waiting, func(*inboxState) {})
	case requeueMark:
		again(requeuedRow, func(n *inboxState) { n.marked = true })
	}
}

// relay sends the service's own row; the broker knows the event again, and stores nothing.
func (b *inboxSteps) relay() {
	const who = "the relay"
	s := &b.from
	if s.relay == sent {
		b.step(who, "is killed", func(n *inboxState) { n.relay = resting })
		if s.away {
			return
		}
		b.step(who, "marks the row done", func(n *inboxState) {
			if n.relay = resting; n.status == processing || !b.c.markOwn {
				n.status = relayed
			}
		})
		return
	}
	if (s.status == processing || s.status == waiting) && !s.away {
		b.step(who, "sends the row, the broker says that it has the event", func(n *inboxState) { n.relay, n.status = sent, processing }).final = true
	}
}
