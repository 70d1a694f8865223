package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-18. Each failed run is kept: when it started, its number among all starts, its error and stack. A success
// is no entry, but it counts as a run.
func TestHistoryOfFailures(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		run := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			r.Clock.Add(time.Second) // it takes that long
			switch run++; run {
			case 1:
				return fmt.Errorf("first\x00: %w", codeError(1))
			case 2:
				panicsWith("second")
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		var starts []database.Time
		for range 3 {
			starts = append(starts, database.At(r.Clock.Now()))
			r.Work()
			r.Clock.Add(time.Hour)
		}
		row := r.Row("acme", "mailer")
		h := row.History()
		if row.Status != durable.Delivered || row.Runs != 3 || len(h) != 2 {
			t.Fatalf("%s after %d runs, with the history %+v", row.Status, row.Runs, h)
		}
		if f := h[0]; f.At != starts[0] || f.Run != 1 || f.Error != "durable_test.codeError: first\uFFFD: code 1" || f.Stack != "" {
			t.Errorf("failure 1 is %+v", f)
		}
		if f := h[1]; f.At != starts[1] || f.Run != 2 || f.Error != "*durable.PanicError: panic: second" || f.Stack == "" {
			t.Errorf("failure 2 is %+v", f)
		}
	})
}

// contract: D-18. Runs and durations are measured, in the row and in the history.
func TestHistoryHasTheDuration(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		takes, fail := 1500*time.Millisecond, true
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			<-time.After(takes)
			if fail {
				return codeError(1)
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		row := r.Row("acme", "mailer")
		if h := row.History(); row.DurationMS != 1500 || len(h) != 1 || h[0].DurationMS != 1500 {
			t.Errorf("the failure took %d ms, in the history %+v; want 1500", row.DurationMS, h)
		}
		takes, fail = 250*time.Millisecond, false
		r.Clock.Add(time.Hour)
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.DurationMS != 250 {
			t.Errorf("%s after %d ms, want 250", row.Status, row.DurationMS)
		}
	})
}

// contract: D-18, A-03. The last 20 are kept, also over a redelivery, and runs go on counting.
func TestHistoryKeepsTheLastTwenty(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		run := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			run++
			return codeError(run)
		}, durable.WithMaxAttempts(22), durable.WithBackoff(0))
		r.Publish("acme", "billing.invoice.paid", nil)
		check := func(first, last int) {
			t.Helper()
			row := r.Row("acme", "mailer")
			h := row.History()
			if row.Runs != last || len(h) != last-first+1 {
				t.Fatalf("after %d runs: runs is %d and the history has %d, want %d to %d", last, row.Runs, len(h), first, last)
			}
			for n, f := range h {
				if f.Run != first+n || f.Error != fmt.Sprintf("durable_test.codeError: code %d", first+n) {
					t.Errorf("after %d runs: entry %d is %+v, want run %d", last, n, f, first+n)
				}
			}
		}
		again := func(times int) {
			t.Helper()
			for range times {
				r.Work()
				r.Clock.Add(time.Millisecond) // a wake-up is rounded up to it
			}
		}
		again(19)
		check(1, 19)
		again(1)
		check(1, 20)
		again(1)
		check(2, 21)
		again(1)
		check(3, 22)

		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead {
			t.Fatalf("the row is %s, want it dead", row.Status)
		}
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), row.ID); err != nil {
			t.Fatal(err)
		}
		check(3, 22)
		again(1)
		check(4, 23)
		if row := r.Row("acme", "mailer"); row.Attempts != 1 {
			t.Errorf("%d attempts after the redelivery, want 1", row.Attempts)
		}
	})
}

// contract: D-18. A history that somebody damaged costs the history, not the outcome.
func TestDamagedHistory(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return codeError(1) })
		r.Publish("acme", "billing.invoice.paid", nil)
		rig.Exec(t, db, `UPDATE event_deliveries SET errors = '{"run":'`)
		if row := r.Row("acme", "mailer"); len(row.History()) != 0 {
			t.Errorf("the history is %v", row.History())
		}
		r.Work()
		row := r.Row("acme", "mailer")
		if h := row.History(); row.Attempts != 1 || len(h) != 1 || h[0].Run != 1 {
			t.Errorf("after a failure: %d attempts, the history %+v", row.Attempts, h)
		}
	})
}
