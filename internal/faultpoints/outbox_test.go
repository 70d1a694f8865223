package faultpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// The ids of the events of the outbox's scripts.
const (
	idBilled  = "00000000-0000-7000-8000-000000000011"
	idAlso    = "00000000-0000-7000-8000-000000000012"
	idDropped = "00000000-0000-7000-8000-000000000013"
	idRemoved = "00000000-0000-7000-8000-000000000014"
	idLate    = "00000000-0000-7000-8000-000000000015"
)

// diedAt is when a relay made its claim that has died before the script begins.
var diedAt = database.At(rig.NewClock().Now())

// script is what a does, and before it, by the hands of others, what it finds.
type script struct {
	name         string
	prepare, run func(w *world)
	parts        []string // in which faults happen; each must have points
	sink         bool     // relays send to a sink outside the database
	bus          bool     // processes receive from a bus
}

// scripts are all. The outbox has its own, for each fault is a run, and these are short.
var scripts = []*script{
	{"deliveries", (*world).prepare, (*world).run, []string{"capture", "claim", "run", "outcome", "renewal", "sweep", "redeliver"}, false, false},
	{"outbox", (*world).prepareQueue, (*world).runQueue, []string{"enqueue", "relay"}, false, false},
	{"sink", (*world).prepareQueue, (*world).runSink, []string{"send"}, true, false},
	{"inbox", (*world).prepareInbox, (*world).runInbox, []string{"bus", "receive", "letter", "requeue"}, false, true},
}

// prepareQueue leaves a row that cannot be read, and one that a relay was sending when it died.
func (w *world) prepareQueue() {
	rig.Exec(w.t, w.b.DB, `INSERT INTO event_queue (event_id, tenant_id, event_type, payload, created_at) VALUES ('x', 'acme', 'no name', '{}', $1)`,
		database.At(w.clock.Now()))
	w.note(entry{What: "enqueue", Event: idLate, Key: also})
	e, err := w.event(w.b.Ctx("acme"), also, idLate)
	if err == nil {
		err = w.b.DB.InTx(w.b.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error { return w.b.Queue.Enqueue(ctx, tx, e) })
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(entry{What: "enqueued", Event: idLate})
	rig.Exec(w.t, w.b.DB, `UPDATE event_queue SET status = 'processing', claimed_at = $1 WHERE event_id = $2`, diedAt, idLate)
	w.advance(outbox.Lease)
}

// runQueue is the script in which relays write deliveries.
func (w *world) runQueue() {
	w.enqueueAll()
	w.relay()
	w.work() // a handler enqueues
	w.relay()
	w.work()
}

// runSink is the one in which they send.
func (w *world) runSink() {
	w.enqueueAll()
	w.send()
}

// enqueueAll enqueues with the caller's own data: for a tenant that is then removed, again what there is already, and in a
// transaction that is rolled back.
func (w *world) enqueueAll() {
	w.enqueue("globex", also, idRemoved, nil)
	rig.Exec(w.t, w.b.DB, `DELETE FROM loam_tenants WHERE id = 'globex'`)
	w.note(entry{What: "removed", Key: "globex"})
	w.enqueue("acme", billed, idBilled, nil)
	w.enqueue("acme", also, idAlso, nil)
	w.enqueue("acme", billed, idBilled, nil)
	w.enqueue("acme", also, idDropped, errNo)
}

// enqueue is a caller that tries again, or one that rolls back for the error end.
func (w *world) enqueue(tenant, name, id string, end error) {
	w.note(entry{What: "enqueue", Event: id, Key: name})
	w.retried("enqueue", func() error {
		err := w.a.DB.InTx(w.a.Ctx(tenant), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO test_orders (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, id); err != nil {
				return err
			}
			e, err := w.event(ctx, name, id)
			if err != nil {
				return err
			}
			if err := w.a.Queue.Enqueue(ctx, tx, e); err != nil {
				return err
			}
			return end
		})
		if end != nil && errors.Is(err, end) {
			return nil
		}
		return err
	})
	if end == nil {
		w.note(entry{What: "enqueued", Event: id})
	}
}

// enqueueNext is a handler that enqueues another event.
func enqueueNext(ctx context.Context, w *world, proc string, _ events.Event) error {
	e, err := w.event(ctx, shipped, "")
	if err != nil {
		return err
	}
	r := w.a
	if proc == "b" {
		r = w.b
	}
	return r.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return r.Queue.Enqueue(ctx, tx, e) })
}

// relay and send let a make rounds until there is nothing to take.
func (w *world) relay() {
	w.retried("the relay", func() error { return drained(w.t.Context(), w.queueA) })
}

func (w *world) send() {
	w.retried("the relay", func() error { return drained(w.t.Context(), w.queueA) })
}

// drain lets b make them, and receive.
func (w *world) drain() {
	if w.script.bus {
		w.consume("b")
		w.operate(w.queueB)
		return
	}
	if err := drained(w.t.Context(), w.queueB); err != nil {
		w.t.Errorf("the relay of b: %v", err)
	}
}

func drained(ctx context.Context, q *outbox.Queue) error {
	for {
		if n, err := q.Round(ctx); n == 0 || err != nil {
			return err
		}
	}
}

// sink is outside the database: what was sent is in the diary.
type sink struct {
	w    *world
	proc string
}

// Send implements outbox.Sink. Of a, there is a point before it, and one after it: its fault is the event's own, or one of the
// transport.
func (s sink) Send(_ context.Context, evs []events.Event) []error {
	errs := make([]error, len(evs))
	if s.proc == "a" {
		if err := s.w.hook.pass(kindSend, "the sink"); err != nil {
			return slices.Repeat([]error{err}, len(evs))
		}
	}
	for _, e := range evs {
		s.w.note(entry{What: "sent", Proc: s.proc, Event: e.ID})
	}
	if s.proc == "a" {
		if err := s.w.hook.pass(kindSent, "the sink"); err != nil {
			for _, e := range evs {
				s.w.again[e.ID] = true
			}
			return slices.Repeat([]error{err}, len(evs))
		}
	}
	return errs
}

// pass passes a point around a call to what is outside the database.
func (h *hook) pass(kind, what string) error {
	if _, hit := h.visit(kind, what); !hit {
		return nil
	}
	err := h.fault.happen(false)
	if err != nil && h.fault.when() == after {
		return outbox.Unavailable(err)
	}
	return err
}

// queue are all rows of event_queue.
func (w *world) queue() (all []outbox.Entry) {
	for _, status := range []outbox.Status{outbox.Pending, outbox.Processing, outbox.Done, outbox.DeadLettered} {
		some, err := w.b.Queue.List(w.t.Context(), outbox.Query{Status: status})
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
}

// sending are the rows that a has claimed.
func (w *world) sending() []outbox.Entry {
	return slices.DeleteFunc(w.queue(), func(e outbox.Entry) bool {
		return e.Status != outbox.Processing || e.ClaimedAt.Equal(diedAt.Time)
	})
}

// early has b's relay come before what a has claimed may be taken over, and lets the time pass until it may.
func (w *world) early() {
	n := len(w.sending())
	if w.script.sink {
		w.drain()
	}
	if left := len(w.sending()); left != n {
		w.t.Errorf("%d rows were taken from a before their claim was over", n-left)
	}
	w.advance(time.Second)
}

// sendAgain notes that another process takes over what a has claimed.
func (w *world) sendAgain() {
	rows := w.sending()
	for _, e := range rows {
		w.again[e.EventID] = true
	}
	w.claimed = len(rows)
}
