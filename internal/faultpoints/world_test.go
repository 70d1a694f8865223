package faultpoints_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// handles are one database as its processes see it.
type handles struct {
	faulty *database.DB // of the process that faults befall
	faults *dbtest.Faults
	sound  *database.DB // of the others
}

// world is one run of the script: a process a that a fault befalls, a process b with the same code that takes over, and
// their clock.
type world struct {
	t testing.TB

	script *script
	clock  *rig.Clock
	a, b   *rig.Rig
	hook   *hook
	diary  *diary

	queueA, queueB *outbox.Queue
	again          map[string]bool // events that may be sent twice
	claimed        int             // rows of event_queue that b has taken over from a
	fetching       sync.Mutex      // of what the bus has

	release chan struct{}        // lets the slow handler return
	started chan context.Context // the slow handler has begun, in a

	// Of a stall:
	held     map[claimKey]bool // the claims of a that b has taken over, or may have
	tookOver bool              // it has
	settled  map[string]durable.EventDelivery
	mu       sync.Mutex
	pending  <-chan struct{}     // b works in the background
	holds    map[claimKey]string // whose handlers b holds
	gated    chan struct{}       // one is held
	open     chan struct{}
}

// newWorld makes the processes over a database in which rig.New has made the tables.
func newWorld(t testing.TB, s *script, h handles, clock *rig.Clock, d *diary) *world {
	t.Helper()
	w := &world{
		t: t, script: s, clock: clock, hook: newHook(), diary: d, again: map[string]bool{},
		release: make(chan struct{}), started: make(chan context.Context, 10),
	}
	h.faults.Before(w.hook.before)
	h.faults.After(w.hook.after)
	w.a = w.process("a", h.faulty, true)
	w.b = w.process("b", h.sound, true)
	w.queueA, w.queueB = w.a.Queue, w.b.Queue
	if s.bus {
		w.queueA, w.queueB = w.inbox(w.a), w.inbox(w.b)
	}
	if s.sink {
		w.queueA, w.queueB = w.a.WithSink(sink{w, "a"}), w.b.WithSink(sink{w, "b"})
	}
	return w
}

// process makes one; it knows all subscribers, or those that nobody registers any more.
func (w *world) process(name string, db *database.DB, current bool) *rig.Rig {
	reg := durable.NewRegistry()
	for _, s := range subscribers {
		if current == (s.key != keyOld) {
			reg.RegisterFunc(s.key, s.pattern, w.handler(name, s), s.opts...)
		}
	}
	return rig.Over(w.t, db, w.clock, func(c *durable.Config) {
		c.Registry, c.Concurrency = reg, 2
		c.Middleware = []durable.Middleware{w.noted(name)}
	})
}

func (w *world) note(e entry) {
	e.Clock = w.clock.Now().UnixNano()
	if err := w.diary.add(e); err != nil {
		w.t.Errorf("the diary: %v", err)
	}
}

func (w *world) advance(d time.Duration) {
	w.clock.Add(d)
	w.note(entry{What: "clock"})
}

type rowKey struct{}

// noted writes each run down, and puts the points of the process that faults befall around its handler.
func (w *world) noted(proc string) durable.Middleware {
	return func(ctx context.Context, d *durable.EventDelivery, next func(context.Context) error) (err error) {
		e := entry{What: "start", Proc: proc, Event: d.EventID, Key: d.SubscriberKey, Run: d.Runs}
		w.note(e)
		e.What, e.Result = "end", "did not return"
		defer func() { w.note(e) }()
		call := func() error { return next(context.WithValue(ctx, rowKey{}, d)) }
		if proc == "a" {
			err = w.hook.around(d.SubscriberKey, call)
		} else {
			w.passGate(keyOf(d))
			err = call()
		}
		switch {
		case err == nil:
			e.Result = "ok"
		case strings.HasPrefix(err.Error(), "snoozed"):
			e.Result = "snoozed"
		case errors.Is(err, durable.ErrClaimLost):
			e.Result = "cut"
		default:
			e.Result = err.Error()
		}
		return err
	}
}

// stallFor is when a claim may be taken over.
const stallFor = rig.Lease + rig.Margin + time.Millisecond

// long is how long a stands still.
func (w *world) long() time.Duration {
	if w.script.sink {
		return outbox.Lease + time.Millisecond
	}
	return stallFor
}

// takeOver lets b do all there is to do, while a stands still outside its transactions; or, midway, until a handler of b's
// is running for what a holds, to go on when a has done its job.
func (w *world) takeOver(midway bool) {
	w.advance(w.long() - time.Second)
	// A transaction that another goroutine of a has open goes on to its commit and stops there. This one comes after it.
	if w.b.DB.Dialect() == database.SQLite {
		rig.Exec(w.t, w.b.DB, `DELETE FROM test_orders WHERE id = ''`)
	} else {
		rig.Exec(w.t, w.b.DB, `LOCK TABLE processed_events, event_deliveries IN EXCLUSIVE MODE`)
	}
	before := w.claims()
	w.early()
	w.sendAgain()
	w.drain()
	w.repair(w.b)
	if midway && len(before) > 0 {
		w.gate(before)
		select {
		case <-w.gated:
		case <-w.inBackground(func() { w.b.Work() }):
		}
	} else {
		w.b.Work()
		w.drain()
		w.settled = w.rows()
	}
	left := w.claims()
	w.held, w.tookOver = map[claimKey]bool{}, true
	for key, owner := range before {
		if left[key] != owner {
			w.held[key] = true
		}
	}
}

// gate holds the handlers of b for these claims until a has done a job.
func (w *world) gate(claims map[claimKey]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds, w.gated, w.open = claims, make(chan struct{}, 10), make(chan struct{})
}

// ungate lets them go on.
func (w *world) ungate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds != nil {
		w.holds = nil
		close(w.open)
	}
}

// pass the gate, in a handler of b.
func (w *world) passGate(key claimKey) {
	w.mu.Lock()
	_, hold := w.holds[key]
	gated, open := w.gated, w.open
	w.mu.Unlock()
	if hold {
		gated <- struct{}{}
		<-open
	}
}

// inBackground lets b do something in a goroutine; the channel is closed when it is done.
func (w *world) inBackground(do func()) <-chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = done
	go func() {
		defer close(done)
		do()
	}()
	return done
}

// waitForB waits until b is done with what it does in the background.
func (w *world) waitForB() {
	w.mu.Lock()
	pending := w.pending
	w.mu.Unlock()
	if pending != nil {
		<-pending
	}
}

// waitForPassing waits until b is done with what it began while a stood still inside a transaction: time goes on only then,
// for a renewal leaves out the rows that b's transactions have locked, and another one comes long before the lease is over.
func (w *world) waitForPassing() {
	w.mu.Lock()
	held := w.holds != nil
	w.mu.Unlock()
	if !held {
		w.waitForB()
	}
}

// pass is a's standing still inside a transaction. On SQLite nobody else can write, and the time passes. Elsewhere b looks for
// work meanwhile, and may have to wait for a's locks; the time stands, for a goes on by it while b is in the middle of its own.
func (w *world) pass() {
	if w.b.DB.Dialect() == database.SQLite {
		w.held = map[claimKey]bool{}
		for key := range w.claims() {
			w.held[key] = true // b may take them over later, and rightly
		}
		w.advance(w.long())
		return
	}
	if w.script.bus { // a has no claims
		w.advance(w.long())
	}
	worked := w.inBackground(func() {
		w.drain()
		w.repair(w.b)
		w.b.Work()
	})
	select {
	case <-worked:
	case <-time.After(200 * time.Millisecond):
	}
}

// repair does what a process does now and then: it looks for lost claims and sweeps.
func (w *world) repair(r *rig.Rig) {
	if _, err := r.Sweeper.LostClaims(w.t.Context()); err != nil {
		w.t.Errorf("lost claims: %v", err)
	}
	if _, err := r.Sweeper.All(w.t.Context(), ""); err != nil {
		w.t.Errorf("sweep: %v", err)
	}
}

// claims are the claims in the ledger, with their owners.
func (w *world) claims() map[claimKey]string {
	out := map[claimKey]string{}
	rows, err := w.b.DB.Read().QueryContext(w.t.Context(), `SELECT tenant_id, event_id, handler, owner FROM processed_events
		WHERE status = 'in_progress'`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var k claimKey
		var owner string
		if err := rows.Scan(&k.Tenant, &k.EventID, &k.Handler, &owner); err != nil {
			w.t.Fatal(err)
		}
		if owner != deadOwner {
			out[k] = owner
		}
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// rows are all deliveries, by id.
func (w *world) rows() map[string]durable.EventDelivery {
	out := map[string]durable.EventDelivery{}
	for _, t := range []string{"acme", "globex"} {
		for _, row := range w.b.Rows(t) {
			out[row.ID] = row
		}
	}
	return out
}

func (w *world) event(ctx context.Context, name, id string) (events.Event, error) {
	var opts []events.PublishOption
	if id != "" {
		opts = append(opts, events.WithID(id))
	}
	return events.New(ctx, name, events.Payload{"invoice_id": 42}, rig.Limits, opts...)
}
