package model

// broker adds what relay i may do with a row that it has claimed for the broker.
func (b *queueSteps) broker(i int) {
	l := &b.from.relay[i]
	q := int(l.ids) - 1 // row 0 or 1, alone
	switch l.pc {
	case claimed:
		switch {
		case b.c.kind[q] == undecodable:
			b.ends(i, q, "dead-letters the row, which cannot be decoded", func(r *queueRow) { r.status = lettered })
		case !b.c.ackFirst:
			n := b.from
			n.row[q].status, n.relay[i].pc = relayed, sent
			b.add(relayNames[i], q, "sends, and marks the row done without an answer", &n, OK)
		default:
			b.send(i, q)
		}
	case sent:
		b.send(i, q)
	case acked:
		b.ends(i, q, "marks the row done", func(r *queueRow) { r.status = relayed })
	case deferring:
		b.ends(i, q, "defers the row", func(r *queueRow) {
			if b.c.spends {
				b.c.failed(r, i)
			} else {
				r.status, r.next, r.claimed = waiting, b.c.skew[i]+queueBackoff, 0
			}
		})
	case refused:
		b.ends(i, q, "spends an attempt", func(r *queueRow) {
			b.c.failed(r, i)
			if b.c.kind[q] == flaky && !b.from.relay[i].twice {
				r.fails++
			}
		})
	}
}

// claim is a transaction by which relay i claims row q.
func (b *queueSteps) claim(i, q int) {
	c, n := b.c, b.from
	r := &n.row[q]
	if c.restamp || r.status != processing {
		r.claimed = c.skew[i]
	}
	n.disown(q)
	r.status, r.bare = processing, false
	n.relay[i] = relay{pc: claimed, ids: 1 << q, tok: r.claimed, mine: true}
	b.add(relayNames[i], q, "claims", &n, OK)
}

// send is a publish to the broker: it is heard or not, and answered or not.
func (b *queueSteps) send(i, q int) {
	c, s := b.c, &b.from
	l := &s.relay[i]
	if c.bounded && c.skew[i] >= l.tok+queueLease-c.stop {
		n := *s
		n.relay[i].pc = deferring
		b.add(relayNames[i], q, "sends nothing: its claim is over, or nearly", &n, OK)
		return
	}
	bad := OK
	if l.pc == claimed && !l.mine {
		bad = SentStale
	}
	step := func(pc int8, name string, more func(r *queueRow)) {
		n := *s
		if l.pc == sent {
			n.relay[i] = relay{}
		} else {
			n.relay[i].pc = pc
		}
		more(&n.row[q])
		b.add(relayNames[i], q, name, &n, bad)
	}
	nothing := func(*queueRow) {}
	step(deferring, "sends, the broker is not reached", nothing)
	if c.kind[q] == flaky {
		step(refused, "sends, the broker refuses", nothing)
	}
	if s.row[q].known > 0 && !c.freshIDs {
		pc := acked
		if c.dupFails {
			pc = refused
		}
		step(pc, "sends, the broker says that it has the event", nothing)
		return
	}
	for k := range copies {
		if !s.row[q].message[k] {
			put := func(r *queueRow) { r.message[k], r.known = true, c.window }
			step(acked, "sends, the broker stores it", put)
			step(deferring, "sends, the broker stores it, and the answer is lost", put)
			return
		}
	}
	step(acked, "sends a third copy", nothing)
}

// ends is a mark that ends relay i's claim, on its condition. A mark whose answer was lost is repeated.
func (b *queueSteps) ends(i, q int, name string, mark func(r *queueRow)) {
	c, n := b.c, b.from
	l := &b.from.relay[i]
	r := &n.row[q]
	may := true
	switch c.markIf {
	case markOwn:
		may = r.status == processing && l.mine
	case markTime:
		may = r.status == processing && (l.mine || l.tok == r.claimed && l.tok > c.lowest())
	case markProcessing:
		may = r.status == processing
	}
	if c.locked(&n, i, q) {
		return // it waits
	}
	if !may {
		n.relay[i] = relay{}
		b.add(relayNames[i], q, "has lost its claim, writes nothing", &n, OK)
		return
	}
	bad := OK
	if !l.mine && (r.status == waiting || r.status == processing) {
		bad = StaleWrite
	}
	n.disown(q)
	mark(r)
	m := n
	m.relay[i].twice = true
	b.add(relayNames[i], q, name+", and the answer is lost", &m, bad)
	n.relay[i] = relay{}
	b.add(relayNames[i], q, name, &n, bad)
}

// consumer adds what consumer i may do next. Being killed leaves it with nothing in its hands, like an ack that is lost; what
// is not acked the broker sends again, to anybody.
func (b *queueSteps) consumer(i int) {
	c, s := b.c, &b.from
	u := &s.consumer[i]
	step := func(to consumer, name string, more func(n *queueState)) {
		n := *s
		n.consumer[i] = to
		more(&n)
		b.add(consumerNames[i], 0, name, &n, OK)
	}
	nothing := func(*queueState) {}
	ack := func(n *queueState) { n.row[0].message[u.copy] = false }
	if u.pc != listening {
		step(consumer{}, "is killed, or cut off", nothing)
	}
	switch u.pc {
	case listening:
		for k := range int8(copies) {
			if s.row[0].message[k] {
				step(consumer{pc: received, copy: k}, "receives a message", nothing)
			}
		}
	case received:
		if !c.commitFirst {
			step(consumer{pc: earlyAck, copy: u.copy}, "acks, has committed nothing yet", ack)
			return
		}
		b.consume(i, consumer{pc: written, copy: u.copy})
	case earlyAck:
		b.consume(i, consumer{})
	case written:
		step(consumer{}, "acks", ack)
	}
}

// consume is the transaction that writes a message's deliveries.
func (b *queueSteps) consume(i int, to consumer) {
	n := b.from
	id := int8(0)
	if b.c.freshIDs {
		id = n.consumer[i].copy
	}
	if n.consumer[i] = to; b.c.store(&n, i, 0, id) {
		b.add(consumerNames[i], 0, "commits the deliveries", &n, OK)
	}
}
