package faultpoints_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: E-10, D-04. The connection is lost between the commit of a publish and its answer. The publisher tries again with the
// same id: one event, one delivery for each subscriber, each woken once.
// scenario: B013
func TestAPublishWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		calls := map[string]*atomic.Int32{"mailer": {}, "audit": {}}
		for _, key := range []string{"mailer", "audit"} {
			r.Registry.RegisterFunc(key, paid, func(context.Context, events.Event) error {
				calls[key].Add(1)
				return nil
			}, durable.WithConcurrency(1))
		}
		ctx := r.Ctx("acme")
		e, err := events.New(ctx, paid, events.Payload{"invoice_id": 42}, rig.Limits, events.WithID(idPaid))
		if err != nil {
			t.Fatal(err)
		}
		answers := 0
		faults.After(func(op dbtest.Op) error {
			if op.Kind != "commit" {
				return nil
			}
			answers++
			return errFault
		})
		if err := r.Deliveries.Capture(ctx, e); !errors.Is(err, errFault) || answers != 1 {
			t.Fatalf("the first publish: %v, %d answers lost", err, answers)
		}
		faults.After(nil)
		if err := r.Deliveries.Capture(ctx, e); err != nil {
			t.Fatalf("the second publish: %v", err)
		}
		if rows, jobs := r.Rows("acme"), r.Wakeups.All(); len(rows) != 2 || len(jobs) != 1 || len(jobs[0].IDs) != 2 {
			t.Errorf("%d deliveries, jobs %v; want two in one job", len(rows), jobs)
		}
		for range 2 { // one slot each is enough for one at a time
			r.Work()
		}
		for _, row := range r.Rows("acme") {
			if n := calls[row.SubscriberKey].Load(); row.Status != durable.Delivered || n != 1 {
				t.Errorf("run %d times: %s", n, describe(&row))
			}
		}
	})
}

// contract: D-10, L-08. A handler fails for the fifth time and the connection dies while that is being written, and the process
// with it. Whatever step it was: the row is dead within one lease and the margin, and listed once.
// scenario: B050
func TestTheConnectionDiesWhileARowBecomesDead(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		handle := func(context.Context, events.Event) error {
			calls++
			return errNo
		}
		r.Registry.RegisterFunc("mailer", paid, handle)
		// begin, the claim, the count, the state, the commit; and the commit whose answer is lost.
		for step := 1; step <= 6; step++ {
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
			r.Publish("acme", paid, nil)
			for range 4 {
				r.Work()
				r.Clock.Add(2 * time.Hour)
			}
			r.Wakeups.Clear()
			faulty, faults := dbtest.Again(t, db)
			p := rig.Over(t, faulty, r.Clock, func(c *durable.Config) { c.Registry = r.Registry })
			n, dead := 0, make(chan struct{})
			outcome := func(at int) func(dbtest.Op) error {
				return func(op dbtest.Op) error {
					if where(op.Kind, op.SQL).part != "outcome" || op.Kind != "commit" && at == 6 {
						return nil
					}
					if n++; n < at && at < 6 {
						return nil
					}
					if n == at || at == 6 {
						close(dead)
					}
					faults.After(nil)
					faults.Before(func(dbtest.Op) error { return errFault })
					return errFault
				}
			}
			if step < 6 {
				faults.Before(outcome(step))
			} else {
				faults.After(outcome(step))
			}
			die(t, p, r.Row("acme", "mailer").ID, dead)
			r.Clock.Add(stallFor)
			if _, err := r.Sweeper.LostClaims(t.Context()); err != nil {
				t.Error(err)
			}
			r.Work()
			page, err := r.Deliveries.Page(r.Ctx("acme"), durable.PageQuery{Status: durable.Dead})
			if row := r.Row("acme", "mailer"); err != nil || len(page.Rows) != 1 || row.Attempts != 5 || len(row.History()) != 5 {
				t.Errorf("step %d: listed %d times (%v): %s", step, len(page.Rows), err, describe(&row))
			}
		}
		if calls != 6*5+5 { // where the outcome was not written, the fifth run is repeated
			t.Errorf("%d runs", calls)
		}
	})
}

// die delivers, and once the connection is dead the process ends without having written anything more.
func die(t *testing.T, p *rig.Rig, id string, dead <-chan struct{}) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Deliveries.Deliver(p.Ctx("acme"), id) }()
	select {
	case <-dead:
	case err := <-done:
		t.Fatalf("the connection did not die (%v)", err)
	}
	p.Deliveries.Stop()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = p.Deliveries.Wait(now) // gives up what cannot be written
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// busy is what SQLite's driver says when another process holds the lock.
type busy struct{}

func (busy) Error() string { return "database is locked" }
func (busy) Code() int     { return 5 }

// contract: D-08, D-10. Two processes write outcomes and each finds the database busy, at every step of its transaction in turn. The
// writes are repeated; no attempt is counted for that, no handler runs again, and both rows are final.
// scenario: B078
func TestABusyDatabaseWhileOutcomesAreWritten(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := map[string]chan int{"good": make(chan int, 10), "bad": make(chan int, 10)}
		r.Registry.RegisterFunc("good", paid, func(context.Context, events.Event) error { calls["good"] <- 1; return nil })
		r.Registry.RegisterFunc("bad", paid, func(context.Context, events.Event) error { calls["bad"] <- 1; return errNo }, durable.WithMaxAttempts(1))
		r.Publish("acme", paid, nil)
		r.Wakeups.Clear()
		ended := make(chan error, 2)
		for key, steps := range map[string]int{"good": 4, "bad": 5} {
			handle, faults := dbtest.Again(t, db)
			p := rig.Over(t, handle, r.Clock, func(c *durable.Config) { c.Registry = r.Registry })
			seen, failed := 0, 0
			faults.Before(func(op dbtest.Op) error {
				if where(op.Kind, op.SQL).part != "outcome" {
					return nil
				}
				if seen++; seen > failed && failed < steps {
					seen, failed = 0, failed+1 // the next try comes one step further
					return busy{}
				}
				return nil
			})
			go func() { ended <- p.Deliveries.Deliver(p.Ctx("acme"), r.Row("acme", key).ID) }()
			t.Cleanup(func() {
				if failed != steps {
					t.Errorf("%s was busy at %d steps, want %d", key, failed, steps)
				}
			})
		}
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		good, bad := r.Row("acme", "good"), r.Row("acme", "bad")
		if good.Status != durable.Delivered || good.Attempts != 0 || good.Runs != 1 || len(calls["good"]) != 1 {
			t.Errorf("run %d times: %s", len(calls["good"]), describe(&good))
		}
		if bad.Status != durable.Dead || bad.Attempts != 1 || bad.Runs != 1 || len(bad.History()) != 1 || len(calls["bad"]) != 1 {
			t.Errorf("run %d times: %s", len(calls["bad"]), describe(&bad))
		}
	})
}
