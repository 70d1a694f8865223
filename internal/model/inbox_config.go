package model

// inboxConfig is the protocol of the receiving half of a bus with its conditions, and what may happen; see inboxFixed.
type inboxConfig struct {
	// The consumer.
	commitFirst bool // it acks after the deliveries are committed
	keeps       bool // while its own database is away it keeps the message; else it refuses it
	extends     bool // and says to the broker that it has it
	letterFirst bool // it ends a message that is given up after its letter is stored
	forGood     bool // what can never be captured gets a letter; else it is acked as if it were
	unique      bool // an event has one delivery
	// What nobody has in the hands after its last delivery.
	advises     bool // the broker keeps an advisory of it, which some process reads
	adviceFirst bool // and acks after the letter is stored
	// Letters.
	once     bool // a message has one
	stays    bool // what was requeued is no letter again because its message's end came again
	own      bool // the service's row of the same event becomes it; else it is in the way
	requeue  int8
	markOwn  bool // the relay's mark is conditional on the row being in processing
	earlier  bool // the broker gives a message up after fewer deliveries than the consumer
	attempts int8

	// What there is, and how often what may happen.
	kind     int8 // good, flaky, undecodable, or untimely
	sender   bool // the service has sent the event itself: its relay is at the row
	requeues int8
	stops    int8 // how often a consumer stands still for longer than the broker waits
}

// untimely is what cannot be captured until something has come: its tenant.
const untimely int8 = undecodable + 1

// How a letter is requeued.
const (
	requeueHere int8 = iota // its deliveries and its mark are one commit
	requeueSink             // it waits for the relay
	requeueMark             // it is marked, and captured after
)

// inboxFixed is the protocol with all its conditions: two consumers of a service.
func inboxFixed() inboxConfig {
	return inboxConfig{
		commitFirst: true, keeps: true, extends: true, letterFirst: true, forGood: true, unique: true,
		advises: true, adviceFirst: true, once: true, stays: true, own: true, markOwn: true, attempts: 2, requeues: 1,
	}
}

// handedOut is how often the broker hands a message out.
func (c *inboxConfig) handedOut() int8 {
	if c.earlier {
		return c.attempts - 1
	}
	return c.attempts
}
