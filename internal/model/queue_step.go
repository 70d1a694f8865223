package model

var (
	relayNames    = [maxRelays]string{"relay 0", "relay 1"}
	consumerNames = [maxConsumers]string{"consumer 0", "consumer 1"}
)

// queueSteps collects the edges that leave a state of the outbox. It is reused.
type queueSteps struct {
	c    *queueConfig
	from queueState
	out  []edge[queueState]
}

func (b *queueSteps) initial() queueState { return b.c.initial() }

func (b *queueSteps) canonical(s *queueState) { b.c.canonical(s) }

func (b *queueSteps) settled(s *queueState) bool { return b.c.settled(s) }

func (b *queueSteps) add(who string, q int, name string, to *queueState, bad Violation) *edge[queueState] {
	b.out = append(b.out, edge[queueState]{who: who, row: int8(q), name: name, to: *to, bad: bad}) //nolint:gosec // small numbers
	return &b.out[len(b.out)-1]
}

// all returns the edges that leave s.
func (b *queueSteps) all(s *queueState) []edge[queueState] {
	b.from, b.out = *s, b.out[:0]
	b.tick()
	for q := range b.c.rows {
		b.publish(q)
		b.deliver(q)
		b.manage(q)
	}
	for i := range b.c.relays {
		b.relay(i)
	}
	for i := range b.c.consumers {
		b.consumer(i)
	}
	for i := range b.out {
		b.c.check(&b.from, &b.out[i])
	}
	return b.out
}

func (b *queueSteps) tick() {
	c, n := b.c, b.from
	for q := range c.rows {
		r := &n.row[q]
		r.next = c.clamp(r.next - 1)
		if r.status == processing {
			r.claimed = c.clamp(r.claimed - 1)
		}
		if r.known > 0 && r.known != forEver {
			r.known--
		}
	}
	for i := range n.relay {
		if l := &n.relay[i]; l.pc >= claimed {
			l.tok = c.clamp(l.tok - 1)
		}
	}
	if n != b.from {
		b.add("", -1, "a tick", &n, OK)
	}
}

// publish is the transaction with the application's data, and the queue's row. That its answer is lost, and it is repeated with
// the event's id, changes nothing.
func (b *queueSteps) publish(q int) {
	c, s := b.c, &b.from
	step := func(pub, status int8, nudge bool, name string) {
		n := *s
		n.row[q].pub, n.row[q].status, n.nudge = pub, status, (n.nudge || nudge) && !c.poll
		b.add("", q, name, &n, OK)
	}
	is := s.row[q].status
	switch s.row[q].pub {
	case undecided:
		step(rolledBack, is, false, "the data is rolled back")
		switch {
		case c.enqueue == enqueueBefore && is == absent:
			step(undecided, waiting, true, "the row is enqueued, the data not yet committed")
		case c.enqueue == enqueueAfter:
			step(owing, absent, false, "the data is committed, the row not yet enqueued")
		case c.enqueue == enqueueWith:
			step(committed, waiting, true, "the data and the row are committed")
			step(committed, waiting, false, "the data and the row are committed, the publisher dies before it nudges the relay")
		default:
			step(committed, is, false, "the data is committed")
		}
	case owing:
		step(committed, waiting, true, "the row is enqueued")
		step(committed, absent, false, "the publisher is killed")
	}
}

// deliver is what comes after: a wake-up, or the sweep's, delivers a delivery. How is the other model's matter.
func (b *queueSteps) deliver(q int) {
	c, s := b.c, &b.from
	for k := range c.subs {
		d := &s.row[q].sub[k]
		if d.many > 0 && !d.done && (d.wake || c.sweep) {
			n := *s
			n.row[q].sub[k].wake, n.row[q].sub[k].done = false, true
			b.add("", q, "a delivery is run", &n, OK)
		}
		if d.many == 0 && k == 0 && c.fills && s.row[q].status != absent && s.row[q].pub == committed {
			n := *s
			n.row[q].sub[k] = queueDelivery{many: 1, ids: 1, wake: true}
			b.add("", q, "something else writes the first delivery", &n, OK)
		}
	}
}

// manage is what an operator may do, and retention, and a publisher who repeats after it.
func (b *queueSteps) manage(q int) {
	c, s := b.c, &b.from
	r := &s.row[q]
	again := !c.requeueIf && s.requeues < c.requeues // somebody's page still says that it is dead
	if s.requeues > 0 && (r.status == lettered || again && r.status != absent) {
		n := *s
		n.requeues--
		n.disown(q)
		n.row[q].anew(c)
		b.add("", q, "an operator requeues", &n, OK).final = r.status == lettered
	}
	if c.prunes && (r.status == relayed || !c.pruneDone && r.status > absent && r.status < relayed) {
		n := *s
		n.row[q].status = pruned
		b.add("", q, "retention deletes the row", &n, OK).final = r.status == relayed
	}
	if r.status == pruned && s.repubs > 0 {
		n := *s
		n.repubs--
		n.row[q].anew(c)
		b.add("", q, "its event is published again, with its id", &n, OK).final = true
	}
}

func (r *queueRow) anew(c *queueConfig) {
	r.status, r.att, r.fails, r.next, r.claimed, r.bare = waiting, 0, 0, c.lowest(), 0, false
}
