package sequences_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

// The model is CONTRACT.md in plain data: rows, who runs them, which tenants and subscribers there are. Each operation has
// one method here, which changes the model as the contract says and returns what must be seen: handlers that start, and
// wake-ups that are inserted. Operations are atomic; a transaction that was not committed is one whose method was not called.

// row is a delivery, and what the ledger has for it.
type row struct {
	event   *event
	key     string
	id      string // in the database, once it was seen
	created time.Time

	status                               durable.Status
	attempts, runs, unfinished, failures int
	next, delivered                      time.Time
	lastError                            string // what it contains

	claim *claim // in_progress
	done  bool
}

// event is one event of a tenant. A label names it in messages, for ids are random.
type event struct {
	id, label, tenant, name string
	payload                 int
	depth                   int
}

// claim is an owner's right to run a row until its lease is over. Its address is the token: who holds another has lost it.
type claim struct {
	call           *call
	started, lease time.Time
}

// call is one call of Deliver: the owner of the claims it takes, also when it tries again.
type call struct {
	p      *proc
	tenant string
	ready  []*row // to be claimed
	aside  []*row // not due yet, but soon; or run by this process
	handOn []wake // for others, or for later
}

// proc is a process.
type proc struct {
	name string
	code *release
	runs []*run
	// asked is how many slots a call holds that tries again.
	asked int
}

// run is one start of a handler.
type run struct {
	p       *proc
	row     *row
	sub     *subscriber
	claim   *claim
	number  int       // among the row's starts
	next    time.Time // the row's next attempt at the claim
	started time.Time // by the engine's clock

	// By the process's own clock, which nobody sets:
	deadline, stuck, expires time.Time

	cause   error // why its context has ended
	slot    bool  // it has a slot
	known   bool  // its process believes that it holds the claim
	written bool  // its outcome was committed
}

// known is what loam_subscribers says of a key.
type known struct {
	subscriber
	firstSeen, lastSeen time.Time
	retired             bool
}

type pauseKey struct{ tenant, key string }

// wake is a wake-up that must be inserted. The zero time is at once.
type wake struct {
	row   *row
	at    time.Time
	alone bool
}

type model struct {
	now  time.Time // the engine's clock
	mono time.Time // the processes' own clock

	tenants map[string]bool
	subs    []*known
	paused  map[pauseKey]bool
	rows    []*row // in the order of capture
	queue   []*queued
	stream  []*message

	remembered map[ledger.Key]bool // done in the ledger, and without a row

	saw map[string]int // how often a rule was met, see TestSequences
}

func newModel(saw map[string]int) *model {
	return &model{tenants: map[string]bool{}, paused: map[pauseKey]bool{}, remembered: map[ledger.Key]bool{}, saw: saw}
}

// The exact times of the contract.
const (
	early      = 10 * time.Second      // D-07
	putBackFor = 30 * time.Second      // D-22
	seenWithin = 15 * time.Minute      // D-22
	gather     = 20 * time.Millisecond // how long a call waits for slots for all its rows
)

func millis(t time.Time) time.Time { return t.Truncate(time.Millisecond) }

// ceil is J-01: a wake-up's time is rounded up to the millisecond.
func ceil(t time.Time) time.Time {
	if millis(t).Equal(t) {
		return t
	}
	return millis(t).Add(time.Millisecond)
}

func wakeNow(r *row) wake { return wake{row: r, alone: r.suspect()} }

func wakeAt(r *row, at time.Time) wake { return wake{r, ceil(at), r.suspect()} }

// suspect is D-20: from the second crash on, a row is woken alone.
func (r *row) suspect() bool { return r.unfinished >= 2 }

// waits reports whether a row is pending and not paused, and due by then.
func (m *model) waits(r *row, by time.Time) bool {
	return r.status == durable.Pending && !r.next.After(by) && !m.paused[pauseKey{r.event.tenant, r.key}]
}

// free reports whether r can be claimed: nobody has it, or its lease has been over for the margin (L-01, L-08).
func (m *model) free(r *row) bool {
	return !r.done && (r.claim == nil || !r.claim.lease.Add(rig.Margin).After(millis(m.now)))
}

// running reports whether the process runs r, and believes that it holds it.
func (p *proc) running(r *row) bool {
	return slices.ContainsFunc(p.runs, func(run *run) bool { return run.row == r && run.known })
}

func (p *proc) freeSlots() int {
	n := slots - p.asked
	for _, r := range p.runs {
		if r.slot {
			n--
		}
	}
	return n
}

// announce is D-24: what a process says of its code, at its start and every five minutes.
func (m *model) announce(code *release, start bool) {
	for _, s := range code.subs {
		k := m.known(s.key)
		if k == nil {
			k = &known{firstSeen: m.now}
			m.subs = append(m.subs, k)
		}
		k.subscriber, k.lastSeen = s, m.now
		if start {
			k.retired = false
		}
	}
	for _, key := range code.retired {
		if k := m.known(key); start && k != nil {
			k.retired = true
		}
	}
}

func (m *model) known(key string) *known {
	if i := slices.IndexFunc(m.subs, func(k *known) bool { return k.key == key }); i >= 0 {
		return m.subs[i]
	}
	return nil
}

// alive reports whether some process has said lately that it has the handler of key (D-22).
func (m *model) alive(key string) bool {
	return slices.ContainsFunc(m.subs, func(k *known) bool {
		return !k.retired && k.answersTo(key) && m.now.Sub(k.lastSeen) <= seenWithin
	})
}

// targets are the keys for which the process writes a row (D-04, D-24): its own, then those that only others have. Keys that
// are aliases of each other are one subscriber: by its own name, or else by the newer one.
func (m *model) targets(p *proc, name string) []subscriber {
	current := slices.DeleteFunc(slices.Clone(m.subs), func(k *known) bool { return k.retired })
	slices.SortFunc(current, func(a, b *known) int { // as they came
		return cmp.Or(a.firstSeen.Compare(b.firstSeen), cmp.Compare(a.key, b.key))
	})
	out := p.code.matching(name)
	for _, k := range current {
		here := slices.ContainsFunc(p.code.subs, func(s subscriber) bool { return s.answersTo(k.key) || k.answersTo(s.key) })
		newer := slices.ContainsFunc(current, func(o *known) bool { return o.key != k.key && o.answersTo(k.key) })
		if events.Match(k.pattern, name) && !here && !newer {
			out = append(out, k.subscriber)
		}
	}
	for i := range out { // a row under the other name is this one's
		for _, k := range current {
			if k.key != out[i].key && k.answersTo(out[i].key) {
				out[i].aliases = append(slices.Clone(out[i].aliases), k.key)
			}
		}
	}
	return out
}

// capture is a publish: one row for each subscriber that has none (D-04, E-10). Without a tenant, or of an unknown one, it
// stores nothing (T-02).
func (m *model) capture(p *proc, e *event) ([]wake, error) {
	targets := m.targets(p, e.name)
	if len(targets) == 0 || !m.tenants[e.tenant] {
		m.saw["T-02 no tenant, or D-04 no match"]++
		return nil, nil
	}
	have := map[string]bool{}
	for _, r := range m.rows {
		if r.event.tenant != e.tenant || r.event.id != e.id {
			continue
		}
		if r.event.name != e.name || r.event.payload != e.payload {
			m.saw["E-10 another payload"]++
			return nil, events.ErrIDReused
		}
		have[r.key] = true
	}
	var woken []wake
	for _, s := range targets {
		if have[s.key] || slices.ContainsFunc(s.aliases, func(a string) bool { return have[a] }) {
			m.saw["E-10 again"]++
			continue
		}
		r := &row{event: e, key: s.key, status: durable.Pending, created: m.now}
		r.done = m.remembered[r.ledgerKey()]
		m.rows = append(m.rows, r)
		woken = append(woken, wakeNow(r))
	}
	return woken, nil
}

func (r *row) ledgerKey() ledger.Key {
	return ledger.Key{Tenant: r.event.tenant, EventID: r.event.id, Handler: r.key}
}

// prune takes away a row; that it is done is remembered.
func (m *model) prune(r *row) {
	m.rows = slices.DeleteFunc(m.rows, func(o *row) bool { return o == r })
	m.remembered[r.ledgerKey()] = r.done
}

// redeliver is A-03, D-25: only a dead row of one's own tenant, and whoever may still run it has lost the claim.
func (m *model) redeliver(tenant string, r *row) ([]wake, error) {
	switch {
	case r.event.tenant != tenant:
		m.saw["T-05 another tenant"]++
		return nil, durable.ErrNotFound
	case r.status != durable.Dead:
		return nil, durable.ErrNotDead
	}
	m.saw["A-03 redelivered"]++
	r.status, r.attempts, r.unfinished, r.next, r.lastError, r.claim, r.done = durable.Pending, 0, 0, time.Time{}, "", nil, false
	return []wake{wakeNow(r)}, nil
}
