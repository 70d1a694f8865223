package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: J-05. A wake-up claims as many rows as there are free slots; the rest is handed on with the claim, before anything
// runs, for another process to take.
func TestNoMoreClaimsThanFreeSlots(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(2))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 5, paid, "mailer")
		done := background(r, ids...)
		within(t, h.started, "the first run")
		if w := r.Wakeups.All(); len(w) != 1 || fmt.Sprint(w[0].IDs) != fmt.Sprint(ids[2:]) || !w[0].At.IsZero() || claims(t, r) != 2 {
			t.Fatalf("%d claims, handed on %v, want the last three of %v", claims(t, r), w, ids)
		}
		within(t, h.started, "the second run")
		other, _ := process(t, r)
		ran := 0
		other.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			ran++
			return nil
		}, durable.WithConcurrency(1)) // one after the other
		if other.Work(); ran != 3 || claims(t, r) != 2 {
			t.Errorf("another process ran %d of the rest, %d claims", ran, claims(t, r))
		}
		h.result <- nil
		h.result <- nil
		ended(t, done, "the end")
		if n := len(h.started); n != 0 || claims(t, r) != 0 {
			t.Errorf("%d runs too many, %d claims left", n, claims(t, r))
		}
	})
}

// contract: J-05, L-01. When the rest cannot be handed on, nothing is claimed.
func TestTheClaimAndTheRestAreOneTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(1))
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			t.Error("run without a claim")
			return nil
		})
		ids := publishMany(r, 2, paid, "mailer")
		before, full := allRows(t, db), errors.New("the queue is full")
		r.Wakeups.Fail = func(durable.Wakeup) error {
			r.Deliveries.Stop() // no second try
			return full
		}
		if err := r.Deliveries.Deliver(r.Ctx("acme"), ids...); !errors.Is(err, full) {
			t.Errorf("Deliver: %v", err)
		}
		if after := allRows(t, db); after != before {
			t.Errorf("something was changed:\n%s\n%s", before, after)
		}
	})
}

// contract: J-05, D-16. A subscriber's own limit is within the process's: one at a limit does not keep another from its slot.
func TestALimitOfASubscribersOwn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(3))
		slow, fast := newHeld(t), newHeld(t)
		r.Registry.Register("slow", "billing.invoice.sent", slow, durable.WithConcurrency(1))
		r.Registry.Register("fast", paid, fast)
		slows := publishMany(r, 3, "billing.invoice.sent", "slow")
		fasts := publishMany(r, 3, paid, "fast")
		slowDone := background(r, slows...)
		within(t, slow.started, "a slow run")
		fastDone := background(r, fasts...)
		within(t, fast.started, "a fast run")
		within(t, fast.started, "another fast run")
		rest := r.Wakeups.All()
		if len(rest) != 2 || fmt.Sprint(rest[0].IDs) != fmt.Sprint(slows[1:]) || fmt.Sprint(rest[1].IDs) != fmt.Sprint(fasts[2:]) ||
			claims(t, r) != 3 {
			t.Fatalf("%d claims, handed on %v", claims(t, r), rest)
		}
		fast.result <- nil
		fast.result <- nil
		ended(t, fastDone, "the end of the fast runs")
		r.Wakeups.Clear()
		mixed := background(r, slows[1], fasts[2])
		within(t, fast.started, "the last fast run")
		rest = r.Wakeups.All()
		if len(slow.started) != 0 || claims(t, r) != 2 || len(rest) != 1 || fmt.Sprint(rest[0].IDs) != fmt.Sprint(slows[1:2]) {
			t.Errorf("%d claims, handed on %v", claims(t, r), rest)
		}
		fast.result <- nil
		ended(t, mixed, "the end of the mixed job")
		slow.result <- nil
		ended(t, slowDone, "the end of the slow run")
	})
}

// contract: J-05. With no slot free a job waits and holds no claim; then it claims for those that are free.
func TestAJobWaitsWithoutAClaim(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(1))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 3, paid, "mailer")
		first := background(r, ids[0])
		within(t, h.started, "the first run")
		second := background(r, ids[1:]...)
		synctest.Wait()
		if len(second) != 0 || len(h.started) != 0 || claims(t, r) != 1 || len(r.Wakeups.All()) != 0 {
			t.Fatalf("while it waits: %d claims, wake-ups %v", claims(t, r), r.Wakeups.All())
		}
		h.result <- nil
		within(t, h.started, "the second run")
		ended(t, first, "the first outcome")
		if w := r.Wakeups.All(); claims(t, r) != 1 || len(w) != 1 || fmt.Sprint(w[0].IDs) != fmt.Sprint(ids[2:]) {
			t.Errorf("%d claims, handed on %v", claims(t, r), w)
		}
		h.result <- nil
		if err := within(t, second, "the second outcome"); err != nil {
			t.Error(err)
		}
	})
}

// contract: J-05. A job that waits gives up when its context ends or the process stops, with nothing done.
func TestAWaitingJobGivesUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(1))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 3, paid, "mailer")
		first := background(r, ids[0])
		within(t, h.started, "the first run")
		before, tooLong := allRows(t, db), errors.New("it took too long")
		ctx, cancel := context.WithCancelCause(r.Ctx("acme"))
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- r.Deliveries.Deliver(ctx, ids[1]) }()
		stopped := background(r, ids[2])
		synctest.Wait()
		cancel(tooLong)
		if err := within(t, gaveUp, "the end of the wait"); !errors.Is(err, tooLong) {
			t.Errorf("its context ended: %v", err)
		}
		r.Deliveries.Stop()
		if err := within(t, stopped, "the end of the wait"); !errors.Is(err, durable.ErrStopping) {
			t.Errorf("the process stops: %v", err)
		}
		if after := allRows(t, db); after != before || len(r.Wakeups.All()) != 0 {
			t.Errorf("something was done:\n%s\n%s", before, after)
		}
		h.result <- nil
		ended(t, first, "the first outcome")
	})
}

// contract: J-05. A slot is one running handler: a row of the same wake-up that is not run takes none.
func TestASlotIsARunningHandler(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(2))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 3, paid, "mailer")
		rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = $1 WHERE id = $2`, database.At(r.Clock.Now().Add(time.Hour)), ids[0])
		one := background(r, ids[:2]...)
		within(t, h.started, "the run of the row that is due")
		two := background(r, ids[2])
		synctest.Wait()
		if len(h.started) != 1 {
			t.Error("one handler runs, there are two slots, and another row does not get one")
		}
		h.result <- nil
		h.result <- nil
		ended(t, one, "one")
		ended(t, two, "two")
	})
}

// contract: J-05. Whatever becomes of a row, its slot is free afterwards.
func TestSlotsAreGivenBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(1))
		handle := func(context.Context, events.Event) error { return nil }
		r.Registry.RegisterFunc("mailer", paid, func(ctx context.Context, e events.Event) error { return handle(ctx, e) })
		ids := publishMany(r, 8, paid, "mailer")
		broken := errors.New("the database is away")
		set := func(id, what string) { rig.Exec(t, db, `UPDATE event_deliveries SET `+what+` WHERE id = $1`, id) }
		for i, prepare := range []func(id string){
			func(id string) { set(id, `next_attempt_at = '9999-01-01 00:00:00.000000'`) },
			func(id string) { set(id, `subscriber_key = 'unknown'`) },
			func(id string) { crash(t, r, id) },
			func(string) { handle = func(context.Context, events.Event) error { return broken } },
			func(string) { handle = func(context.Context, events.Event) error { panic("no") } },
			func(string) {
				handle = func(context.Context, events.Event) error { runtime.Goexit(); return nil }
			},
			func(string) { faults.Before(func(dbtest.Op) error { return broken }) },
			func(string) {
				faults.Before(func(op dbtest.Op) error {
					if op.Kind == "begin" {
						return broken
					}
					return nil
				})
			},
		} {
			prepare(ids[i])
			err := r.Deliveries.Deliver(r.Ctx("acme"), ids[i])
			faults.Before(nil)
			if (i >= 6) != errors.Is(err, broken) {
				t.Fatalf("case %d: %v", i, err)
			}
		}
		handle = func(context.Context, events.Event) error { return nil }
		last := publishMany(r, 1, paid, "mailer")
		done := background(r, last[len(last)-1])
		synctest.Wait()
		if row, err := r.Deliveries.Get(r.Ctx("acme"), last[len(last)-1]); row.Status != durable.Delivered {
			t.Errorf("no slot is left: %v, %v", row.Status, err)
		}
		ended(t, done, "the end")
	})
}

// contract: L-08. When the caller of Deliver is gone its runs go on: renewed, and with their outcome.
func TestARunOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 1, paid, "mailer")
		ctx, cancel := context.WithCancel(r.Ctx("acme"))
		done := make(chan error, 1)
		go func() { done <- r.Deliveries.Deliver(ctx, ids...) }()
		hctx := within(t, h.started, "the run")
		cancel()
		if err := within(t, done, "the return of Deliver"); err != nil || hctx.Err() != nil {
			t.Errorf("Deliver: %v; the handler's context: %v", err, hctx.Err())
		}
		r.Clock.Add(20 * time.Second)
		if err := r.Deliveries.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := claimOf(t, db, r.Row("acme", "mailer")); c.Lease != r.Clock.Now().UnixMilli()+60_000 {
			t.Errorf("not renewed: %+v", c)
		}
		h.result <- nil
		if err := r.Deliveries.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered {
			t.Errorf("afterwards %+v", row)
		}
	})
}
