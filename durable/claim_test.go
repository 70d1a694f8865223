package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

// contract: L-01, L-03. The claim is a row of the ledger with its time in milliseconds, its lease and a random owner; success
// marks it done, failure deletes it. Times of other precision and the last moment of a day do not confuse it.
// scenario: B162
func TestTheClaimIsARowOfTheLedger(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Clock.Add(time.Date(2026, 3, 29, 23, 59, 59, 999_999_900, time.UTC).Sub(r.Clock.Now()))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		owners := map[string]bool{}
		for _, result := range []error{nil, errors.New("no")} {
			e := r.Publish("acme", paid, nil)
			row := r.Rows("acme")[len(owners)]
			done := background(r, row.ID)
			within(t, h.started, "the run")
			c := claimOf(t, db, row)
			want := time.Date(2026, 3, 29, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
			if c.Status != "in_progress" || c.Started != want || c.Lease != want+60_000 || c.Owner == "" || row.EventID != e.ID {
				t.Fatalf("while it runs: %+v", c)
			}
			owners[c.Owner] = true
			h.result <- result
			if err := within(t, done, "the outcome"); err != nil {
				t.Fatal(err)
			}
			row, err := r.Deliveries.Get(r.Ctx("acme"), row.ID)
			if err != nil {
				t.Fatal(err)
			}
			c = claimOf(t, db, row)
			if result != nil {
				if c.Status != "" || row.Attempts != 1 {
					t.Errorf("after a failure: %+v, %d attempts", c, row.Attempts)
				}
				continue
			}
			last := time.Date(2026, 3, 29, 23, 59, 59, 999_999_000, time.UTC)
			if c.Status != "done" || c.Ended != want || row.Status != durable.Delivered || !row.DeliveredAt.Equal(last) {
				t.Errorf("after success: %+v, %s at %v", c, row.Status, row.DeliveredAt)
			}
		}
		if len(owners) != 2 {
			t.Errorf("owners of two claims: %v", owners)
		}
	})
}

// contract: L-02, J-03, L-04. Two wake-ups that meet in two processes run the handler once.
// scenario: B058
func TestTwoWakeupsMeet(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		p, _ := process(t, r, knows(r))
		var running, calls atomic.Int32
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			if running.Add(1) > 1 {
				t.Error("two at once")
			}
			calls.Add(1)
			running.Add(-1)
			return nil
		})
		const rounds = 30
		for n := range rounds {
			r.Publish("acme", paid, nil)
			id := r.Rows("acme")[n].ID
			one, two := background(r, id), background(p, id)
			if err := errors.Join(within(t, one, "one"), within(t, two, "two")); err != nil {
				t.Fatal(err)
			}
		}
		if calls.Load() != rounds {
			t.Fatalf("%d calls for %d deliveries", calls.Load(), rounds)
		}
		r.Work() // what is left of the wake-ups, and the extra ones
		r.Clock.Add(2 * time.Minute)
		r.Work()
		if calls.Load() != rounds || len(r.Wakeups.All()) != 0 {
			t.Errorf("%d calls in the end, wake-ups %v", calls.Load(), r.Wakeups.All())
		}
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered || row.Runs != 1 {
				t.Errorf("%s, %d runs", row.Status, row.Runs)
			}
		}
	})
}

// contract: D-11, D-25. A key that nobody here knows is judged under a claim: never beside a run, and only when due. Then the
// row is dead, and its claim is gone with it.
// model: 30
func TestAnUnknownKeyIsParkedUnderAClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		b, _ := process(t, r) // an older build
		r.Publish("acme", paid, nil)
		id := r.Row("acme", "mailer").ID
		done := background(r, id)
		within(t, h.started, "the run")
		r.Wakeups.Clear()
		before := allRows(t, db)
		b.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{id}})
		if after := allRows(t, db); after != before {
			t.Fatalf("judged beside a run:\n%s\n%s", before, after)
		}
		free := time.UnixMilli(claimOf(t, db, r.Row("acme", "mailer")).Lease).Add(rig.Margin)
		if w := r.Wakeups.All(); len(w) != 1 || !w[0].At.Equal(free) {
			t.Errorf("deferred to %v, want %v", w, free)
		}
		r.Wakeups.Clear()
		h.result <- errors.New("no")
		ended(t, done, "the outcome")
		r.Wakeups.Clear()

		r.Clock.Add(59 * time.Second)
		b.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{id}})
		if row := r.Row("acme", "mailer"); row.Status != durable.Pending {
			t.Fatalf("parked before it was due: %+v", row)
		}
		r.Clock.Add(time.Second)
		r.Wakeups.Clear()
		b.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{id}})
		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead || row.LastError != `no registered subscriber "mailer"` || row.Attempts != 1 ||
			!row.NextAttemptAt.IsZero() || row.Unfinished != 0 || row.Runs != 1 {
			t.Errorf("parked: %+v", row)
		}
		if c := claimOf(t, db, row); c.Status != "" || len(r.Wakeups.All()) != 0 {
			t.Errorf("ledger %+v, wake-ups %v", c, r.Wakeups.All())
		}
	})
}

// contract: L-05, D-20. What the ledger says is done is not run again; its row is marked delivered.
func TestWhatIsDoneIsSkipped(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return nil
		})
		r.Publish("acme", paid, nil)
		r.Work()
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending', attempts = 2, unfinished = 1, last_error = 'x', delivered_at = NULL,
			next_attempt_at = $1`, database.At(r.Clock.Now()))
		r.Clock.Add(time.Hour)
		row := r.Row("acme", "mailer")
		done := claimOf(t, db, row)
		r.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{row.ID}})
		row = r.Row("acme", "mailer")
		now := database.At(r.Clock.Now())
		if calls != 1 || row.Status != durable.Delivered || row.DeliveredAt != now || row.UpdatedAt != now || row.Attempts != 2 ||
			row.Unfinished != 0 || row.LastError != "" || !row.NextAttemptAt.IsZero() || row.Runs != 1 {
			t.Errorf("%d runs, %+v", calls, row)
		}
		if claimOf(t, db, row) != done || r.Count("loam.skipped", "done") != 1 || len(r.Wakeups.All()) != 0 {
			t.Errorf("ledger %+v, wake-ups %v", claimOf(t, db, row), r.Wakeups.All())
		}
	})
}

// contract: L-06, J-01. While the ledger cannot be read or written the handler is not run: the call fails, nothing is changed,
// and a later wake-up runs it.
func TestAnUnreadableLedgerSkipsTheHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return nil
		})
		r.Publish("acme", paid, nil)
		id := r.Row("acme", "mailer").ID
		before, broken := allRows(t, db), errors.New("the ledger is unreadable")
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "processed_events") {
				return broken
			}
			return nil
		})
		if err := r.Deliveries.Deliver(r.Ctx("acme"), id); !errors.Is(err, broken) {
			t.Errorf("Deliver: %v", err)
		}
		faults.Before(nil)
		if after := allRows(t, db); calls != 0 || after != before {
			t.Errorf("%d runs, %s\n%s", calls, before, after)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); calls != 1 || row.Status != durable.Delivered {
			t.Errorf("%d runs, %+v", calls, row)
		}
	})
}

// contract: D-07, L-08. Times are compared as times, not as the text that SQLite's own functions write.
// scenario: B159
func TestTimesOfTheSameDayAreToldApart(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		ten := func(c *durable.Config) {
			c.Ledger = &ledger.Ledger{Lease: 590 * time.Second, Margin: 10 * time.Second, Dialect: database.SQLite}
		}
		r := rig.New(t, db, ten)
		var ran []string
		for _, key := range []string{"nine", "eleven", "later"} {
			r.Registry.RegisterFunc(key, paid, func(context.Context, events.Event) error {
				ran = append(ran, key)
				return nil
			})
		}
		at := func(clock string) time.Time {
			d, err := time.Parse(time.DateTime, "2026-04-01 "+clock)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		set := func(clock string) { r.Clock.Add(at(clock).Sub(r.Clock.Now())) }
		set("09:19:00")
		r.Publish("acme", paid, nil)
		rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = $1 WHERE subscriber_key = 'later'`, database.At(at("10:00:00")))
		crash(t, r, r.Row("acme", "eleven").ID)
		set("09:21:00")
		crash(t, r, r.Row("acme", "nine").ID)
		for _, step := range []struct{ clock, ran string }{
			{"09:30:00", "[eleven]"}, {"09:59:59", "[eleven nine]"}, {"10:00:00", "[eleven nine later]"},
		} {
			set(step.clock)
			r.Wakeups.Clear()
			if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 500); n != 1 || err != nil {
				t.Errorf("at %s: %d rows swept, %v", step.clock, n, err)
			}
			r.Work()
			if fmt.Sprint(ran) != step.ran {
				t.Fatalf("at %s: ran %v, want %s", step.clock, ran, step.ran)
			}
		}
	})
}
