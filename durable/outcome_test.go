package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-09, D-10. The schedule is that of the source: the waits after failures 1 to 4 are 60, 300, 1800 and 7200 s
// from the start of the run, to the microsecond, and the fifth failure is final.
func TestFailuresFollowTheSchedule(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", "billing.invoice.paid", func(context.Context, events.Event) error {
			runs++
			return errors.New("no")
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		for n, wait := range []time.Duration{60 * time.Second, 300 * time.Second, 1800 * time.Second, 7200 * time.Second} {
			start := r.Clock.Now().Truncate(time.Microsecond)
			r.Work()
			row := r.Row("acme", "mailer")
			if row.Status != durable.Pending || row.Attempts != n+1 || runs != n+1 {
				t.Fatalf("after failure %d: %s, %d attempts, %d runs", n+1, row.Status, row.Attempts, runs)
			}
			if want := start.Add(wait); !row.NextAttemptAt.Equal(want) {
				t.Fatalf("after failure %d: next attempt at %v, want %v", n+1, row.NextAttemptAt, want)
			}
			r.Clock.Add(wait - time.Microsecond)
			r.Work()
			if runs != n+1 {
				t.Fatalf("run %d came before it was due", n+2)
			}
			r.Clock.Add(time.Millisecond)
		}
		r.Work()
		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead || row.Attempts != 5 || runs != 5 || !row.NextAttemptAt.IsZero() {
			t.Fatalf("after failure 5: %s, %d attempts, %d runs, next attempt %v", row.Status, row.Attempts, runs, row.NextAttemptAt)
		}
		if len(r.Wakeups.All()) != 0 {
			t.Error("a dead row has wake-ups")
		}
	})
}
