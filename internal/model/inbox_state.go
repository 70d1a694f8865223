package model

// Where the message is.
const (
	inStream  int8 = iota // it may be handed out
	out                   // it was, and is not answered
	ended                 // it was acked, or told that it need not come again
	exhausted             // it was handed out for the last time, and not answered
)

// Where a consumer is, or who reads advisories.
const (
	empty    int8 = iota
	got           // has a message
	acking        // has committed its deliveries
	nacking       // it was refused
	giving        // gives it up, has not yet stored its letter
	ending        // has stored it
	ackedNow      // has acked, has committed nothing yet
	endedNow      // has ended it, has stored no letter yet
)

// The row of event_queue that the message has, or gets: pruned and refused do not come here.
const requeuedRow = pruned + 1 // a letter that was requeued, done

// hand is a consumer and its message.
type hand struct {
	pc, n int8 // the delivery, from 1
	still bool // it stands still
}

type inboxState struct {
	// The broker.
	msg, delivered int8
	advice         bool // there is an advisory that nobody has acked
	// The service's database.
	away    bool
	many    int8 // deliveries
	status  int8 // of the row
	letter  bool // it is, or was, a letter
	letters int8 // rows that are the message's letter
	// The processes.
	hand    [maxConsumers]hand
	adviser int8 // empty, ending, or endedNow
	relay   int8 // resting, or sent
	marked  bool // an operator has marked a letter, and not captured it yet

	requeues, stops int8
	came            bool // what an untimely one needs

	cause int8 // what really happened: the deliveries that were the event's own failures, or a process's, a set
}

func (c *inboxConfig) initial() inboxState {
	s := inboxState{requeues: c.requeues, stops: c.stops}
	if c.sender {
		s.status, s.relay = processing, sent
	}
	return s
}

// canonical makes states one that differ in the names of the consumers only.
func (*inboxConfig) canonical(s *inboxState) {
	if a, b := &s.hand[0], &s.hand[1]; pack(b.pc, b.n, bit(b.still)) < pack(a.pc, a.n, bit(a.still)) {
		*a, *b = *b, *a
	}
}

// holder returns whoever has the last delivery in its hands, or nil.
func (s *inboxState) holder() *hand {
	for i := range s.hand {
		if h := &s.hand[i]; h.pc != empty && h.n == s.delivered {
			return h
		}
	}
	return nil
}

// blame notes that a delivery was spent for a reason: the event's own, or a process that died or was not heard.
func (s *inboxState) blame(n int8) { s.cause |= 1 << n }

// captured adds the event's deliveries.
func (c *inboxConfig) captured(s *inboxState) {
	if s.many == 0 || !c.unique {
		s.many++
	}
}

// takes reports whether the event is captured, may be refused, and may never be captured as things are.
func (c *inboxConfig) takes(s *inboxState) (may, refused, never bool) {
	switch c.kind {
	case flaky:
		return true, true, false
	case undecodable:
		return false, false, true
	case untimely:
		return s.came, false, !s.came
	}
	return true, false, false
}

// bury stores the letter, and reports whether the database took it.
func (c *inboxConfig) bury(s *inboxState) bool {
	switch {
	case s.letter && !c.once:
		s.letters++
	case s.letter && c.stays:
	case s.letter:
		s.status = lettered
	case s.status != absent && !c.own:
		return false
	default:
		s.status, s.letter, s.letters = lettered, true, 1
	}
	return true
}

// check looks for what is wrong with any step.
func (c *inboxConfig) check(from *inboxState, e *edge[inboxState]) {
	is := &e.to
	switch {
	case e.bad != OK:
	case is.many > 1:
		e.bad = DoubleDelivery
	case is.letters > 1:
		e.bad = TwoLetters
	case (from.status == lettered || from.status == requeuedRow) && is.status != from.status && !e.final:
		e.bad = FinalOverwritten
	case is.letter && !from.letter && !c.spent(is):
		e.bad = AttemptsWrong
	case c.lost(is):
		e.bad = Lost
	}
}

// spent: the message may be given up.
func (c *inboxConfig) spent(s *inboxState) bool {
	all := int8(1<<(c.attempts+1) - 2)
	return c.kind == undecodable || c.kind == untimely || s.cause&all == all
}

// lost: the message will not come again, and neither its deliveries nor a letter are there, nor is anybody alive about to
// write one.
func (c *inboxConfig) lost(s *inboxState) bool {
	if s.many > 0 || s.status == lettered || s.marked || s.adviser == endedNow {
		return false
	}
	held := false
	for i := range s.hand {
		held = held || s.hand[i].pc != empty
		if s.hand[i].pc == ackedNow || s.hand[i].pc == endedNow {
			return false
		}
	}
	return s.status == requeuedRow || s.msg == ended && s.status != waiting || s.msg == exhausted && c.advises && !s.advice && !held
}

// settled: the event is delivered, or a dead letter, and nothing is in anybody's way.
func (c *inboxConfig) settled(s *inboxState) bool {
	return (s.msg == ended || s.msg == exhausted && !s.advice) && (s.many > 0 || s.status == lettered) && s.status != processing && s.status != waiting
}
