package main

import (
	"hash/fnv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// The times of the protocol, a thirtieth of the defaults, so that half an hour has hundreds of takeovers.
const (
	lease      = 2 * time.Second
	margin     = 400 * time.Millisecond
	renewEvery = 400 * time.Millisecond
	lostEvery  = 500 * time.Millisecond
	sweepEvery = 5 * time.Second
	// shiftLimit is how far a worker's clock is off at most, either way: two of them differ by half of the margin.
	shiftLimit = 100 * time.Millisecond
	// farShift is a clock that is plainly wrong: its process must claim nothing.
	farShift = 20 * time.Minute
)

const maxAttempts = 5

// tenants of the application.
var tenants = []string{"acme", "globex", "initech", "umbrella"}

// subscriber is one of the application's durable subscribers.
type subscriber struct {
	key, pattern string
	// slow is how many times as long as the others' its runs take.
	slow int
	// stubborn ignores its context, as a handler should not.
	stubborn bool
	// transactional is registered with RegisterTx, and keeps books.
	transactional bool
	// crowd is one of the crowd, whose deliveries nearly all succeed at once.
	crowd bool
	queue string
}

var subscribers = []subscriber{
	{key: "mail.receipt", pattern: "shop.order.", slow: 1},
	{key: "ledger.post", pattern: "shop.order.paid", slow: 1},
	{key: "stock.move", pattern: "shop.", slow: 1},
	{key: "report.build", pattern: "shop.order.placed", slow: 3, queue: "reports"},
	{key: "legacy.sync", pattern: "shop.order.paid", slow: 1, stubborn: true},
	{key: "books.post", pattern: "shop.order.paid", slow: 1, transactional: true},
}

var names = []string{"shop.order.placed", "shop.order.paid", "shop.stock.counted"}

// matches is E-02's rule, written again: the tester must not use what it tests.
func (s *subscriber) matches(name string) bool {
	return name == s.pattern || strings.HasSuffix(s.pattern, ".") && strings.HasPrefix(name, s.pattern)
}

// keepsBooks reports whether the subscriber with this key is the transactional one.
func keepsBooks(key string) bool {
	return knownKeys[key].transactional
}

func (s *subscriber) options(kind database.Dialect) []durable.Option {
	opts := []durable.Option{
		durable.WithMaxAttempts(maxAttempts),
		durable.WithBackoff(50*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond),
	}
	if s.queue != "" {
		opts = append(opts, durable.WithQueue(s.queue))
	}
	if s.transactional {
		opts = append(opts, durable.WithMaxAttempts(maxAttempts+timeoutLimit))
		if kind == database.SQLite { // the engine allows no more: nobody may miss a renewal
			opts = append(opts, durable.WithTimeout(renewEvery))
		}
	}
	return opts
}

// timeoutLimit is how many attempts the transactional subscriber has for its deadlines, which are short on SQLite: a process
// that is suspended in a run misses it.
const timeoutLimit = 10

// draw makes a number below n of the words: the same in every process, so that each knows what an event is about.
func draw(n uint64, words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w))
		_, _ = h.Write([]byte{0})
	}
	x := h.Sum64() // its low bits are too alike for words that are
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x % n
}

// kind is how an event is published.
type kind string

const (
	direct kind = "direct"
	inTx   kind = "tx"
	// undone is a transaction that rolls back after it has published.
	undone kind = "undone"
	// twice is published again after it was committed, as by a caller that did not get the answer.
	twice kind = "twice"
)

// planned is all there is to know about an event, from its id.
type planned struct {
	tenant, name string
	kind         kind
}

func plan(id uuid.UUID) planned {
	s := id.String()
	p := planned{tenant: tenants[draw(uint64(len(tenants)), s, "tenant")], name: names[draw(uint64(len(names)), s, "name")]}
	switch n := draw(100, s, "kind"); {
	case n < 50:
		p.kind = direct
	case n < 85:
		p.kind = inTx
	case n < 90:
		p.kind = undone
	default:
		p.kind = twice
	}
	return p
}

// ownRow reports whether the event belongs to a row of the application's table.
func (p planned) ownRow() bool { return p.kind == inTx || p.kind == undone }

func payload(id uuid.UUID) events.Payload {
	return events.Payload{"order": draw(1<<40, id.String(), "order"), "note": strings.Repeat("n", int(draw(120, id.String(), "note")))} //nolint:gosec // below 120
}

// behaviour is what a handler does in a run of which attempts failures came before.
type behaviour string

const (
	succeeds behaviour = "ok"
	fails    behaviour = "fail"
	panics   behaviour = "panic"
	exits    behaviour = "goexit"
	retries  behaviour = "retry"
	snoozes  behaviour = "snooze"
	parks    behaviour = "park"
	// undo is the result of a run whose transaction the database did not let be; no script has it.
	undo behaviour = "undo"
	// cutShort is the result of a run that gave up because its context ended; no script has it.
	cutShort behaviour = "cut"
)

// script is how an event goes with a subscriber. How a delivery ends follows from it, whatever happens meanwhile.
type script struct {
	failures int // before the first success; maxAttempts: for ever
	by       behaviour
}

func scriptOf(id uuid.UUID, key string) script {
	s := id.String()
	if knownKeys[key].crowd && draw(calm, s, key, "calm") > 0 {
		return script{by: succeeds}
	}
	switch n := draw(100, s, key, "script"); {
	case n < 80:
		return script{by: succeeds}
	case n < 88:
		return script{by: fails, failures: 1 + int(draw(3, s, key, "failures"))} //nolint:gosec // below 3
	case n < 91:
		return script{by: panics, failures: 1}
	case n < 93:
		return script{by: exits, failures: 1}
	case n < 95:
		return script{by: snoozes} // in its first run
	case n < 97:
		return script{by: retries, failures: 1}
	case n < 98 || keepsBooks(key): // which cannot fail until it is dead: its deadlines spend attempts, too
		return script{by: parks, failures: 1}
	default:
		return script{by: fails, failures: maxAttempts}
	}
}

// next is what a run does, after so many failures, counting itself among the starts.
func (s script) next(attempts, runs int) behaviour {
	switch {
	case s.by == snoozes && runs <= 1, s.by != snoozes && attempts < s.failures:
		return s.by
	}
	return succeeds
}

// final is how the delivery must end.
func (s script) final() (status string, attempts int) {
	switch {
	case s.by == parks:
		return "dead", 1
	case s.failures >= maxAttempts:
		return "dead", maxAttempts
	}
	return "delivered", s.failures
}

// afterTakeover is how much longer a run takes that comes after one without an outcome: often so long that a zombie, when
// it wakes, finds its successor at work, whom it must not disturb.
func afterTakeover(n uint64) time.Duration {
	if n%2 == 0 {
		return 0
	}
	return time.Duration(500+(n/2)%2500) * time.Millisecond
}

// duration is how long a run takes: mostly short, now and then longer than the lease.
func (s *subscriber) duration(n uint64) time.Duration {
	ms := uint64(0)
	switch n % 1000 {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		ms = 2000 + (n/1000)%3000
	default:
		switch {
		case n%1000 < 40:
			ms = 200 + (n/1000)%800
		case n%1000 < 300:
			ms = 20 + (n/1000)%180
		default:
			ms = (n / 1000) % 20
		}
		ms *= uint64(s.slow) //nolint:gosec // small
	}
	if s.transactional { // on SQLite nobody else writes meanwhile
		if ms %= 100; n%20 > 0 {
			ms /= 20
		}
	}
	return time.Duration(ms) * time.Millisecond
}
