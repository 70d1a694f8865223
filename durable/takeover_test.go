package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
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
