package sweep_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// workBeside works the wake-ups of two sweeps in two processes at once, so that those for one row meet, and then what they
// left. It returns how many wake-ups there were in all.
func workBeside(t *testing.T, r *rig.Rig, first, second []durable.Wakeup) int {
	t.Helper()
	r.Wakeups.Clear()
	s := r.Second(func(c *durable.Config) { c.Registry = r.Registry })
	var both sync.WaitGroup
	for p, wakeups := range map[*rig.Rig][]durable.Wakeup{r: first, s: second} {
		both.Go(func() {
			for _, w := range wakeups {
				p.Deliver(w)
			}
		})
	}
	both.Wait()
	n := len(first) + len(second) + r.Work()
	r.Clock.Add(2 * rig.Lease) // a wake-up that met a claim was put back to the claim's end
	return n + r.Work()
}

// handledOnce checks that each of n events was handled once, and that each row is delivered.
func handledOnce(t *testing.T, r *rig.Rig, calls map[string]int, n int) {
	t.Helper()
	if len(calls) != n {
		t.Errorf("%d events were handled, want %d", len(calls), n)
	}
	for id, c := range calls {
		if c != 1 {
			t.Errorf("%s was handled %d times", id, c)
		}
	}
	for _, row := range r.Rows("acme") {
		if row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 1 {
			t.Errorf("%s is %s after %d runs and %d failures", row.ID, row.Status, row.Runs, row.Attempts)
		}
	}
	if left := r.Wakeups.All(); len(left) > 0 {
		t.Errorf("%d wake-ups are left", len(left))
	}
}

func sweepAll(t *testing.T, r *rig.Rig) {
	t.Helper()
	if _, err := r.Sweeper.All(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
}

// contract: J-03, S-04, L-02. Two sweeps back to back, with nobody working, wake 500 rows twice: by ten wake-ups and no more,
// each row runs once, and when all is worked nothing more is woken.
// scenario: B060
func TestTwoSweepsBackToBack(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n, batches = 500, 500 / durable.MaxWakeup
		r := rig.New(t, db)
		calls := mailer(r)
		fill(t, r, "acme", n, durable.Pending, "mailer", r.Clock.Now())
		sweepAll(t, r)
		first := r.Wakeups.All()
		sweepAll(t, r)
		second := r.Wakeups.All()[len(first):]
		if len(first) != batches || len(second) != batches {
			t.Errorf("the sweeps made %d and %d wake-ups, want %d each", len(first), len(second), batches)
		}
		all := workBeside(t, r, first, second)
		handledOnce(t, r, calls, n)
		// Of each of the ten, what met a claim was put back, in as few wake-ups as there are times to put back to.
		if all > 4*batches {
			t.Errorf("%d wake-ups for %d rows", all, n)
		}
		if sweepAll(t, r); len(woken(r)) != 0 {
			t.Error("a third sweep wakes what is done")
		}
	})
}

// contract: J-03, S-02, L-02. Sweeps just before and just after a full hour, with nobody working: each row is woken by those that
// find it due, to the microsecond, none is skipped, and each runs once.
// scenario: B063
func TestSweepsAroundAnHour(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		noon := time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)
		at := func(d time.Duration) { r.Clock.Add(noon.Add(d).Sub(r.Clock.Now())) }
		const tenth = 100 * time.Millisecond
		const us = time.Microsecond
		due := []time.Duration{-time.Hour, -tenth - us, -tenth, -tenth + us, -us, 0, us, tenth - us, tenth, tenth + us}
		created := database.At(noon.Add(-2 * time.Hour))
		rig.Insert(t, db, "event_deliveries",
			"id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at, next_attempt_at",
			len(due), func(i int) []any {
				return []any{
					fmt.Sprintf("row%02d", i), "acme", fmt.Sprint("e", i), "mailer", paid, "loam", "{}", durable.Pending, created, created,
					database.At(noon.Add(due[i-1])),
				}
			})
		at(-tenth)
		sweepAll(t, r)
		first := r.Wakeups.All()
		at(tenth)
		sweepAll(t, r)
		second := r.Wakeups.All()[len(first):]
		ids := func(wakeups []durable.Wakeup) (n int) {
			for _, w := range wakeups {
				n += len(w.IDs)
			}
			return n
		}
		if len(first) != 1 || len(second) != 1 || ids(first) != 3 || ids(second) != 9 {
			t.Errorf("the sweeps woke %v and %v", first, second)
		}
		if all := workBeside(t, r, first, second); all > 4 {
			t.Errorf("%d wake-ups for %d rows", all, len(due))
		}
		sweepAll(t, r)
		if last := r.Wakeups.All(); ids(last) != 1 {
			t.Errorf("the last row, due a microsecond later, is woken by %v", last)
		}
		r.Work()
		handledOnce(t, r, calls, len(due))
	})
}
