package model

// Violation is a way in which the protocol can fail.
type Violation uint8

// The ways. Any step of a variant that holds must be OK.
const (
	// OK is none.
	OK Violation = iota
	// Overlap: two handlers run, each inside the lease that it knows; or two in one process, neither of them found lost.
	Overlap
	// NotDue: a row was run that was not pending and due when its claim was committed.
	NotDue
	// RanPaused: a row was run whose claim was committed, or found again, after the pause.
	RanPaused
	// StaleWrite: an outcome was applied although another claim was taken since.
	StaleWrite
	// AppliedTwice: one run's outcome was recorded twice.
	AppliedTwice
	// StaleRenewal: a claim was renewed that is another's.
	StaleRenewal
	// AttemptsWrong: the row's attempts are not the failures recorded.
	AttemptsWrong
	// OldPayload: a run with the payload before an edit delivered the row.
	OldPayload
	// KilledLive: a process without the key parked a row that another is running.
	KilledLive
	// ParkedKnown: a process without the key parked a row that another process has the handler for.
	ParkedKnown
	// NotACrasher: the row was parked by the crash limit after fewer crashes.
	NotACrasher
	// CrashesForgotten: the row was run after more crashes than the limit.
	CrashesForgotten
	// Swallowed: an operator's redelivery was marked delivered without a run.
	Swallowed
	// FinalOverwritten: a delivered or dead row was changed by somebody other than an operator.
	FinalOverwritten
	// EffectTwice: a transactional handler's effect was committed twice.
	EffectTwice
	// EffectMissing: a row was marked delivered without its transactional handler's effect.
	EffectMissing
	// Ghost: an event was enqueued whose data was rolled back.
	Ghost
	// Lost: an event whose data was committed is nowhere.
	Lost
	// DoubleDelivery: an event has two deliveries for a subscriber.
	DoubleDelivery
	// TwoLetters: a message that was given up is two dead letters.
	TwoLetters
	// SentStale: a relay sent an event that another had claimed since.
	SentStale
	// Orphan: from some state no steps lead to the row being delivered or dead.
	Orphan
)

func (v Violation) String() string {
	return [...]string{
		"ok", "OVERLAP", "RAN WHEN NOT DUE", "RAN WHILE PAUSED", "STALE WRITE", "APPLIED TWICE", "STALE RENEWAL", "ATTEMPTS WRONG",
		"OLD PAYLOAD DELIVERED", "KILLED UNDER A LIVE CLAIM", "PARKED ALTHOUGH KNOWN", "KILLED AS A CRASHER", "CRASHES FORGOTTEN",
		"REDELIVERY SWALLOWED", "FINAL OVERWRITTEN", "EFFECT TWICE", "EFFECT MISSING", "GHOST", "LOST", "DOUBLE DELIVERY", "TWO LETTERS", "SENT WITHOUT A CLAIM", "ORPHAN",
	}[v]
}

// live: the handler runs, and its process believes its lease to be valid. Not counted is a run whose claim an operator's
// decision has ended: it ends when it is found lost.
func (c *config) live(s *state, i, r int) bool {
	u := &s.w[i].run[r]
	return (u.pc == running || u.pc == stuck) && (!u.voided || c.countVoid) && c.skew[i] < u.lease-c.stop
}

// check looks for what is wrong with any step, whoever does it.
func (c *config) check(from *state, e *edge[state]) {
	for r := 0; r < c.rows && e.bad == OK; r++ {
		was, is := &from.row[r], &e.to.row[r]
		alive := 0
		for i := range c.procs {
			if c.live(&e.to, i, r) {
				alive++
			}
		}
		switch {
		case alive > 1:
			e.bad = Overlap
		case is.effect > 1:
			e.bad = EffectTwice
		case c.txn && is.status == delivered && is.effect == 0:
			e.bad = EffectMissing
		case was.want && is.want && is.status == delivered:
			e.bad = Swallowed
		case was.status != pending && is.status != was.status && !e.final:
			e.bad = FinalOverwritten
		}
	}
}

// settled: nothing is left to do. A handler that never returns keeps its claim: its row waits for its process's end, by design.
func (c *config) settled(s *state) bool {
	for r := range c.rows {
		if s.row[r].status == pending && !c.heldByStuck(s, r) {
			return false
		}
	}
	return true
}

func (c *config) heldByStuck(s *state, r int) bool {
	for i := range c.procs {
		if u := &s.w[i].run[r]; u.pc == stuck && u.mine {
			return true
		}
	}
	return false
}
