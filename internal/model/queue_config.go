package model

const (
	queueLease   = 2 // ticks, of a relay's claim
	queueBackoff = 1 // tick, after a failure or a deferral
	maxRelays    = 2
	maxConsumers = 2
	subscribers  = 2
	copies       = 2  // of a message in the stream
	forEver      = 99 // a window that is never over
)

// How the data's transaction and the queue's row are committed.
const (
	enqueueWith   int8 = iota // together
	enqueueBefore             // the row in a transaction before the data's
	enqueueAfter              // the row in a transaction after the data's
)

// When the relay without a broker marks a row done.
const (
	markWith  int8 = iota // in the transaction that writes the deliveries
	markFirst             // in a transaction before
	markAfter             // in a transaction after
)

// When the wake-ups of new deliveries are inserted.
const (
	wakeWith  int8 = iota // in the transaction that writes them
	wakeAfter             // in a transaction after
	wakeNever
)

// What a mark is conditional on.
const (
	markOwn        int8 = iota // the row is in processing, and the claim is the relay's own
	markTime                   // the same, the claim being known by claimed_at in whole ticks
	markProcessing             // the row is in processing
	markAny
)

// What a row is.
const (
	good        int8 = iota
	flaky            // the broker, or the database, may refuse it
	unwritable       // they always refuse it
	undecodable      // it cannot be read
)

// queueConfig is the protocol of the outbox with its conditions, and what may happen; see queueFixed.
type queueConfig struct {
	// The publisher, and how the relay finds rows.
	enqueue  int8
	poll     bool // a relay looks by itself, not only when nudged
	byStatus bool // it looks for the status, not for ids above the last one seen
	reclaim  bool // a claim that is older than the lease may be taken over
	noStamp  bool // and one without claimed_at
	letters  bool // a row that cannot be decoded is dead-lettered; else it is an error like any
	table    bool // matched are the keys of all processes, not only one's own
	// The relay without a broker.
	lock     bool // rows are locked from their choice to the commit, and locked ones are skipped
	recheck  bool // a failure is recorded, and a row marked after its deliveries, on condition that it is still to be done
	halves   bool // a batch that fails is tried in parts
	mark     int8
	wakes    int8
	unique   bool // an event has one delivery per subscriber
	conflict bool // and one that is there already is no error
	// The relay with a broker.
	claimIf     bool // a row is claimed on condition that it may be, not as it was read before
	restamp     bool // taking over a claim sets claimed_at
	markIf      int8
	ackFirst    bool // it marks a row done when the broker has answered, not when it has sent
	bounded     bool // it sends nothing when its own claim is over
	stop        int8 // or ends within so many ticks
	spends      bool // a transport failure spends an attempt
	dupFails    bool // the broker's answer that it has the event already is taken for a failure
	freshIDs    bool // a row without an event id gets a new one whenever it is sent
	window      int8 // ticks in which the broker knows an event's id again
	commitFirst bool // the consumer acks after its commit
	// The operator and retention.
	requeueIf bool // requeueing is conditional on the status the operator saw
	pruneDone bool // retention takes done rows only

	// What there is, and how often what may happen.
	rows, relays, consumers, subs int
	broker                        [maxRelays]bool // the relay publishes to the broker
	lacks                         [maxRelays]int8 // the subscribers that relay i's process, or consumer i's, does not have, a set
	skew                          [maxRelays]int8
	kind                          [maxRows]int8
	maxAtt                        int8
	leftover                      bool // the row was left in processing by a process that is gone
	bare                          bool // which set no claimed_at
	sweep                         bool
	fills                         bool // something else, such as a backfill, may write a delivery
	prunes                        bool
	requeues, repubs              int8
}

// queueFixed is the protocol with all its conditions: two relays without a broker.
func queueFixed() queueConfig {
	return queueConfig{
		poll: true, byStatus: true, reclaim: true, noStamp: true, letters: true, table: true,
		lock: true, recheck: true, halves: true, unique: true, conflict: true,
		claimIf: true, restamp: true, ackFirst: true, bounded: true, window: forEver, commitFirst: true,
		requeueIf: true, pruneDone: true,
		rows: 1, relays: 2, subs: 1, maxAtt: 2, kind: [maxRows]int8{flaky, good},
	}
}

// lowest is a relative time that is past for every clock.
func (c *queueConfig) lowest() int8 {
	return min(c.skew[0], c.skew[1], 0) - queueLease - c.stop - 1
}

func (c *queueConfig) clamp(t int8) int8 { return max(t, c.lowest()) }

// matches reports whether process i finds subscriber k.
func (c *queueConfig) matches(i, k int) bool { return c.table || c.lacks[i]>>k&1 == 0 }

// symmetric: the two relays are alike.
func (c *queueConfig) symmetric() bool {
	return c.relays == 2 && c.skew[0] == c.skew[1] && c.broker[0] == c.broker[1] && c.lacks[0] == c.lacks[1]
}
