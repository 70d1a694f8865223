package model

import (
	"cmp"
	"fmt"
	"slices"
)

// Variant is the protocol, whole or with something taken away, and what must come of it.
type Variant struct {
	// Number names it for the tests that hold its condition fast; it never changes.
	Number int
	Name   string
	// Want are the ways in which it must fail: none of the protocol as it is.
	Want    []Violation
	explore func(limit uint32) Result
}

// Explore looks at all its states, or at about limit of them, if limit is not 0.
func (v *Variant) Explore(limit uint32) Result { return v.explore(limit) }

func (v *Variant) String() string { return fmt.Sprintf("%02d %s", v.Number, v.Name) }

// fixed is the protocol with all its conditions.
func fixed() config {
	return config{
		recheck: true, own: ownLook, unkClaim: true, ownRepeat: true, giveBack: true, backWakes: true, backStarts: true,
		putBack: true, repeatEach: true, handOn: handInClaim, doneGuard: true, elseCheck: true, elseKeeps: true,
		pauseIn: pauseInClaim, pauseRep: true,
		token: tokenFull, renew: true, failWakes: true, lostWakes: true, lostCounts: true, lostLeaves: true, cutWakes: true,
		unfCounter: true, rowGuard: true, parkForgets: true, redelForgets: true,
		lostCheck: true, rescue: true, redelReset: true, againForces: true, resume: resumeAll,
		rows: 1, procs: 2, slots: 2, maxAtt: 2, crashes: 2, redels: 1,
	}
}

// table builds the variants.
type table []Variant

// add enters a variant: the fixed protocol, changed.
func (t *table) add(number int, name string, change func(c *config), want ...Violation) {
	c := fixed()
	change(&c)
	open := func() protocol[state] { return &steps{c: &c} }
	*t = append(*t, Variant{Number: number, Name: name, Want: want, explore: func(limit uint32) Result { return explore(open, limit) }})
}

// addQueue enters a variant of the outbox.
func (t *table) addQueue(number int, name string, change func(c *queueConfig), want ...Violation) {
	c := queueFixed()
	change(&c)
	open := func() protocol[queueState] { return &queueSteps{c: &c} }
	*t = append(*t, Variant{Number: number, Name: name, Want: want, explore: func(limit uint32) Result { return explore(open, limit) }})
}

// addInbox enters a variant of the receiving half of a bus.
func (t *table) addInbox(number int, name string, change func(c *inboxConfig), want ...Violation) {
	c := inboxFixed()
	change(&c)
	open := func() protocol[inboxState] { return &inboxSteps{c: &c} }
	*t = append(*t, Variant{Number: number, Name: name, Want: want, explore: func(limit uint32) Result { return explore(open, limit) }})
}

// Variants returns all of them, in the order of their numbers.
func Variants() []Variant {
	var t table
	t.whole()
	t.claims()
	t.clocks()
	t.crashes()
	t.repairs()
	t.operators()
	t.pauses()
	t.jobs()
	t.processes()
	t.cutRuns()
	t.parks()
	t.queues()
	t.batches()
	t.brokers()
	t.transactional()
	t.unanswered()
	t.inboxes()
	slices.SortFunc(t, func(a, b Variant) int { return cmp.Compare(a.Number, b.Number) })
	return t
}
