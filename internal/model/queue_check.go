package model

// check looks for what is wrong with any step, whoever does it.
func (c *queueConfig) check(from *queueState, e *edge[queueState]) {
	for q := 0; q < c.rows && e.bad == OK; q++ {
		was, is := &from.row[q], &e.to.row[q]
		final := was.status == lettered || was.status == pruned || was.status == relayed
		switch {
		case is.pub == rolledBack && is.status != absent:
			e.bad = Ghost
		case c.double(is):
			e.bad = DoubleDelivery
		case final && is.status != was.status && !e.final:
			e.bad = FinalOverwritten
		case is.att != is.fails, is.status == lettered && is.fails < c.maxAtt && c.kind[q] != undecodable:
			e.bad = AttemptsWrong
		case c.lost(&e.to, q):
			e.bad = Lost
		}
	}
}

func (c *queueConfig) double(r *queueRow) bool {
	for k := range r.sub {
		if r.sub[k].many > 1 {
			return true
		}
	}
	return false
}

// lost: the queue's row will not be looked at again, and neither the stream nor the deliveries have the event, nor is anybody
// alive about to write it.
func (c *queueConfig) lost(s *queueState, q int) bool {
	r := &s.row[q]
	switch {
	case r.status == absent:
		return r.pub == committed
	case r.status != relayed && r.status != pruned:
		return false
	}
	for j := range s.relay {
		if s.relay[j].is(q, markedOld, sent) {
			return false
		}
	}
	for j := range s.consumer {
		if s.consumer[j].pc == received || s.consumer[j].pc == earlyAck {
			return false
		}
	}
	for k := range c.subs {
		if r.sub[k].many == 0 && !r.message[0] && !r.message[1] {
			return true
		}
	}
	return false
}

// settled: every event is delivered, or a dead letter, or was rolled back.
func (c *queueConfig) settled(s *queueState) bool {
	for q := range c.rows {
		r := &s.row[q]
		switch {
		case r.pub == rolledBack, r.status == lettered:
		case r.status != relayed && r.status != pruned:
			return false
		default:
			for k := range c.subs {
				if !r.sub[k].done {
					return false
				}
			}
		}
	}
	return true
}
