package durable_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: L-08, L-04. However late its renewal, no process takes over a claim in its own table; another does.
func TestNoTakeoverInOnesOwnProcess(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 1, paid, "mailer")
		done := background(r, ids...)
		within(t, h.started, "the run")
		r.Clock.Add(5 * time.Minute)
		before := allRows(t, db)
		ended(t, background(r, ids...), "a second job for the row")
		alone := make(chan error, 1)
		go func() { alone <- r.Deliveries.DeliverAlone(r.Ctx("acme"), ids[0]) }()
		ended(t, alone, "a third job for the row")
		if n, err := r.Sweeper.LostClaims(t.Context()); n != 0 || err != nil {
			t.Errorf("%d claims of its own taken for lost, %v", n, err)
		}
		if after := allRows(t, db); after != before || len(h.started) != 0 {
			t.Fatalf("its own claim was taken over:\n%s\n%s", before, after)
		}
		for _, w := range r.Wakeups.All() {
			if !w.At.After(r.Clock.Now()) {
				t.Errorf("deferred to %v, at %v: it would come again at once", w.At, r.Clock.Now())
			}
		}
		other, _ := process(t, r, knows(r))
		second := background(other, ids...)
		within(t, h.started, "the run that took over")
		h.result <- nil
		h.result <- nil
		ended(t, done, "the first")
		ended(t, second, "the second")
	})
}

// contract: L-08, J-05. Neither does a job that had looked before the run began, and waited for a slot since.
func TestAWaitingJobTakesNothingOverInItsOwnProcess(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(2))
		h, blocker := newHeld(t), newHeld(t)
		r.Registry.Register("mailer", paid, h)
		r.Registry.Register("blocker", "billing.invoice.sent", blocker)
		blockers := publishMany(r, 2, "billing.invoice.sent", "blocker")
		ids := publishMany(r, 1, paid, "mailer")
		one, two := background(r, blockers[0]), background(r, blockers[1])
		within(t, blocker.started, "a blocker")
		within(t, blocker.started, "a blocker")
		three, four := background(r, ids...), background(r, ids...)
		synctest.Wait() // both jobs have seen the row, and wait for a slot
		blocker.result <- nil
		within(t, h.started, "the run")
		r.Clock.Add(5 * time.Minute)
		blocker.result <- nil
		synctest.Wait() // the other job has had the slot
		if len(h.started) != 0 {
			t.Error("the process took its own claim over: one row runs twice in it")
		}
		for range 1 + len(h.started) {
			h.result <- nil
		}
		for _, done := range []<-chan error{one, two, three, four} {
			ended(t, done, "the end")
		}
	})
}

// contract: L-08. Another call of the process that comes between the commit of a claim and its run does not take the claim
// over, also when the clock has stepped past its lease. (On SQLite it can only come after.)
func TestNoTakeoverBetweenTheCommitAndTheRun(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		var calls atomic.Int32
		release := make(chan struct{})
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls.Add(1)
			<-release
			return nil
		})
		r.Publish("acme", paid, nil)
		id := r.Row("acme", "mailer").ID
		var once sync.Once
		second := make(chan (<-chan error), 1)
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				once.Do(func() {
					r.Clock.Add(10 * time.Minute)
					done := background(r, id)
					select {
					case err := <-done:
						done = closedWith(err)
					case <-time.After(2 * time.Second): // on SQLite it waits for this very transaction
					}
					second <- done
				})
			}
			return nil
		})
		first := background(r, id)
		done := <-second
		ended(t, done, "the second call")
		if n := calls.Load(); n > 1 {
			t.Errorf("%d runs at once", n)
		}
		close(release)
		ended(t, first, "the first call")
		if row := r.Row("acme", "mailer"); row.Runs != 1 || row.Status != durable.Delivered || calls.Load() != 1 {
			t.Errorf("%d calls, %+v", calls.Load(), row)
		}
	})
}

// closedWith is a channel with one result in it.
func closedWith(err error) <-chan error {
	done := make(chan error, 1)
	done <- err
	return done
}
