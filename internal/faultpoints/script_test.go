package faultpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// The ids of the events of the script.
const (
	idPaid    = "00000000-0000-7000-8000-000000000001"
	idSent    = "00000000-0000-7000-8000-000000000002"
	idOpened  = "00000000-0000-7000-8000-000000000003"
	idVoided  = "00000000-0000-7000-8000-000000000004"
	idDue     = "00000000-0000-7000-8000-000000000005"
	idCrashed = "00000000-0000-7000-8000-000000000006"
	idDone    = "00000000-0000-7000-8000-000000000007"
	idOld     = "00000000-0000-7000-8000-000000000008"
	idGone    = "00000000-0000-7000-8000-000000000009"
	idUndone  = "00000000-0000-7000-8000-00000000000a"
)

// deadOwner is the owner of claims whose process has died before the script begins.
const deadOwner = "dead"

// tries is how often a call is made: a fault happens once.
const tries = 3

// retried makes a call again until it succeeds, as the engine's loops do, and River for its jobs.
func (w *world) retried(what string, call func() error) {
	var err error
	for range tries {
		if err = call(); err == nil {
			return
		}
	}
	w.t.Errorf("%s fails again and again: %v", what, err)
}

// prepare makes, by the hands of others, what the script finds.
func (w *world) prepare() {
	c := w.process("c", w.b.DB, false)
	w.note(entry{What: "publish", Event: idOld, Key: old})
	e, err := w.event(c.Ctx("acme"), old, idOld)
	if err == nil {
		err = c.Deliveries.Capture(c.Ctx("acme"), e)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(entry{What: "published", Event: idOld})
	for _, p := range []struct{ tenant, name, id string }{{"globex", gone, idGone}, {"acme", done, idDone}, {"acme", crashed, idCrashed}} {
		w.note(entry{What: "publish", Event: p.id, Key: p.name})
		e, err := w.event(w.b.Ctx(p.tenant), p.name, p.id)
		if err == nil {
			err = w.b.Deliveries.Capture(w.b.Ctx(p.tenant), e)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.note(entry{What: "published", Event: p.id})
	}
	// The handler has succeeded for an event of before; a process has died with a claim, and another with one whose row is
	// gone since.
	rig.Exec(w.t, w.b.DB, `INSERT INTO processed_events (tenant_id, event_id, handler, status, started_at, lease_until, owner, processed_at)
		VALUES ('acme', $1, 'done', 'done', 1, 2, $3, 3), ('acme', $2, 'crashed', 'in_progress', 1, 2, $3, NULL),
		       ('acme', 'no-such-event', 'crashed', 'in_progress', 1, 2, $3, NULL)`, idDone, idCrashed, deadOwner)
	rig.Exec(w.t, w.b.DB, `UPDATE event_deliveries SET runs = 1, unfinished = 1 WHERE subscriber_key = 'crashed'`)
	w.clear(c)
}

// clear loses all wake-ups.
func (w *world) clear(r *rig.Rig) {
	var ids []string
	for _, u := range r.Wakeups.All() {
		ids = append(ids, u.IDs...)
	}
	w.note(entry{What: "cleared", IDs: ids})
	r.Wakeups.Clear()
}

// run is the script: what a does.
func (w *world) run() {
	ctx := w.a.Ctx("acme")
	// Captured, more rows than slots; a retry, a snooze, a park, a panic, and a publish by a handler.
	w.publish(paid, idPaid)
	w.publishTx(sent, idSent)
	w.publishTxUndone(viewed, idUndone)
	w.publish(viewed, "")
	for range 2 {
		w.work()
		w.advance(61 * time.Second)
	}
	w.work()
	if w.hook.hasFired() { // what meets the fault may need another turn before its wake-up is lost
		w.advance(301 * time.Second)
		w.work()
	}
	// Wake-ups are lost, and claims; a tenant is removed.
	w.publish(due, idDue)
	w.clear(w.b)
	w.retried("the check for lost claims", func() error {
		_, err := w.a.Sweeper.LostClaims(ctx)
		return err
	})
	rig.Exec(w.t, w.b.DB, `DELETE FROM loam_tenants WHERE id = 'globex'`)
	w.note(entry{What: "removed", Key: "globex"})
	w.retried("the sweep", func() error {
		_, err := w.a.Sweeper.All(ctx, "")
		return err
	})
	w.work()
	w.renewed()
	w.redelivered()
}

// publish publishes an event with an id again until it gets an answer. Without one, it does so once.
func (w *world) publish(name, id string) {
	ctx := w.a.Ctx("acme")
	e, err := w.event(ctx, name, id)
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(entry{What: "publish", Event: e.ID, Key: name})
	call := func() error { return w.a.Deliveries.Capture(ctx, e) }
	if id == "" {
		err = call()
	} else {
		w.retried("publish", call)
	}
	if err == nil {
		w.note(entry{What: "published", Event: e.ID})
	}
}

// publishTx publishes an event with data of the caller's own.
func (w *world) publishTx(name, id string) {
	w.note(entry{What: "publish", Event: id, Key: name})
	w.retried("publish with data", func() error { return w.publishInTx(name, id, nil) })
	w.note(entry{What: "published", Event: id})
}

// publishTxUndone is a caller that rolls back.
func (w *world) publishTxUndone(name, id string) {
	w.retried("publish and roll back", func() error {
		if err := w.publishInTx(name, id, errNo); !errors.Is(err, errNo) {
			return err
		}
		return nil
	})
}

func (w *world) publishInTx(name, id string, end error) error {
	return w.a.DB.InTx(w.a.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO test_orders (id) VALUES ($1) ON CONFLICT (id) DO NOTHING`, id); err != nil {
			return err
		}
		e, err := w.event(ctx, name, id)
		if err != nil {
			return err
		}
		if err := w.a.Deliveries.CaptureTx(ctx, tx, e); err != nil {
			return err
		}
		return end
	})
}

// next takes a job, as a worker does.
func (w *world) next() (durable.Wakeup, bool) {
	u, ok := w.b.Wakeups.Next(w.clock.Now())
	if ok {
		w.note(entry{What: "job", IDs: u.IDs})
	}
	return u, ok
}

// work works jobs until none is due.
func (w *world) work() {
	for {
		u, ok := w.next()
		if !ok {
			return
		}
		w.deliver(u)
	}
}

func (w *world) deliver(u durable.Wakeup) {
	ctx := w.a.Ctx(u.Tenant)
	w.retried("the job", func() error {
		if u.Queue == durable.SuspectQueue {
			return w.a.Deliveries.DeliverAlone(ctx, u.IDs[0])
		}
		return w.a.Deliveries.Deliver(ctx, u.IDs...)
	})
	w.note(entry{What: "jobdone", IDs: u.IDs})
	w.ungate()
	w.waitForB()
}

// renewed lets a handler run for longer than its first lease: a renewal keeps its claim.
func (w *world) renewed() {
	release := sync.OnceFunc(func() { close(w.release) })
	defer release() // from here on nothing is held, whatever became of it
	w.publish(opened, idOpened)
	for {
		u, ok := w.next()
		if !ok { // another process has done it
			return
		}
		worked := make(chan struct{})
		go func() {
			defer close(worked)
			w.deliver(u)
		}()
		select {
		case <-worked:
			continue
		case <-w.started:
		}
		w.waitForPassing()
		w.advance(40 * time.Second)
		w.note(entry{What: "renewed", Event: idOpened, Key: keySlow, Proc: "a"})
		w.retried("the renewal", func() error { return w.a.Deliveries.Renew(w.a.Ctx("acme")) })
		w.advance(40 * time.Second)
		w.repair(w.b)
		w.b.Work()
		release()
		<-worked
		w.work()
		return
	}
}

// redelivered lets a delivery die and redelivers it.
func (w *world) redelivered() {
	w.publish(voided, idVoided)
	for range 3 { // it fails twice, and once more if its handler meets the fault
		w.work()
		w.advance(301 * time.Second)
	}
	for id, row := range w.rows() {
		if row.SubscriberKey != keyDoomed || row.Status != durable.Dead {
			continue
		}
		w.note(entry{What: "redeliver", IDs: []string{id}})
		w.retried("redeliver", func() error {
			if err := w.a.Deliveries.Redeliver(w.a.Ctx("acme"), id); !errors.Is(err, durable.ErrNotDead) { // its answer was lost
				return err
			}
			return nil
		})
		w.note(entry{What: "redelivered", IDs: []string{id}})
	}
	w.work()
	w.advance(301 * time.Second)
	w.work()
}
