package model

// The status of a queue row.
const (
	absent int8 = iota
	waiting
	processing
	relayed // the status done
	lettered
	pruned
)

// Where the publisher of a row is.
const (
	undecided int8 = iota // the data's transaction is open, or not begun
	rolledBack
	owing // the data is committed, the row is not
	committed
)

// Where a relay is.
const (
	resting   int8 = iota
	writing        // has chosen rows, its transaction is open
	markedOld      // has marked them, has not yet written the deliveries
	waking         // has written deliveries, has not yet inserted their wake-ups
	marking        // has written deliveries, has not yet marked the rows
	picked         // has read which row to claim
	refusing       // the database refused the row, which is not yet recorded
	claimed        // has claimed a row for the broker; so from here on
	sent           // has marked it, has no answer yet
	acked          // the broker has the event
	deferring      // nobody knows whether the broker has it; or it has not been sent
	refused        // the broker refused it
)

// Where a consumer is.
const (
	listening int8 = iota
	received       // has a message
	earlyAck       // has acked it, has not yet committed its deliveries
	written        // has committed them, has not yet acked
)

// queueDelivery is a subscriber's delivery of an event.
type queueDelivery struct {
	many int8 // rows; more than one is wrong
	ids  int8 // the event ids that they have, a set
	wake bool
	done bool
}

// queueRow is an event: its row in the queue, what the broker has of it, and its deliveries.
type queueRow struct {
	pub, status, att int8
	next             int8 // next_attempt_at
	claimed          int8 // claimed_at
	bare             bool // it is in processing without one
	known            int8 // ticks in which the broker still knows the id
	message          [copies]bool
	sub              [subscribers]queueDelivery

	fails int8 // what really happened: refusals recorded since the last requeue
}

type relay struct {
	pc    int8
	ids   int8 // the rows in its hands, a set
	tok   int8 // claimed_at of its claim
	mine  bool // the claim in the queue is its own
	twice bool // the mark was committed once, the answer was lost
}

type consumer struct{ pc, copy int8 }

type queueState struct {
	row              [maxRows]queueRow
	relay            [maxRelays]relay
	consumer         [maxConsumers]consumer
	cursor           int8 // rows before it are not looked at
	nudge            bool
	requeues, repubs int8
}

func (c *queueConfig) initial() queueState {
	s := queueState{requeues: c.requeues, repubs: c.repubs}
	for q := range c.rows {
		s.row[q].next = c.lowest()
		if c.leftover {
			s.row[q].pub, s.row[q].status, s.row[q].bare = committed, processing, c.bare
		}
	}
	return s
}

// canonical makes states one that differ in the names of relays and consumers only.
func (c *queueConfig) canonical(s *queueState) {
	if a, b := &s.relay[0], &s.relay[1]; c.symmetric() && b.pack() < a.pack() {
		*a, *b = *b, *a
	}
	if a, b := &s.consumer[0], &s.consumer[1]; c.consumers == 2 && c.lacks[0] == c.lacks[1] && pack(b.pc, b.copy) < pack(a.pc, a.copy) {
		*a, *b = *b, *a
	}
}

func (l *relay) pack() uint64 { return pack(l.pc, l.ids, l.tok, bit(l.mine), bit(l.twice)) }

// locked: another relay's transaction holds the row.
func (c *queueConfig) locked(s *queueState, i, q int) bool {
	for j := range s.relay {
		if l := &s.relay[j]; c.lock && j != i && l.pc == writing && l.ids>>q&1 == 1 {
			return true
		}
	}
	return false
}

// disown: whoever has a claim on a row has it no longer.
func (s *queueState) disown(q int) {
	for j := range s.relay {
		if s.relay[j].ids>>q&1 == 1 {
			s.relay[j].mine = false
		}
	}
}

// is reports whether the row is in the hands of relay l and it is where pc says.
func (l *relay) is(q int, pcs ...int8) bool {
	for _, pc := range pcs {
		if l.pc == pc && l.ids>>q&1 == 1 {
			return true
		}
	}
	return false
}
