package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-15. What a handler asks for: parked at once, snoozed without spending an attempt (at least a second), or
// failed with a wait of its own; also wrapped.
func TestHandlerSteers(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name     string
		err      error
		status   durable.Status
		attempts int
		wait     time.Duration // from now; 0: no next attempt
		lastErr  string
	}{
		{"park", durable.Park(boom), durable.Dead, 1, 0, "*errors.errorString: boom"},
		{"park wrapped", fmt.Errorf("mailer: %w", durable.Park(boom)), durable.Dead, 1, 0, "*errors.errorString: mailer: boom"},
		{"snooze", durable.Snooze(90 * time.Second), durable.Pending, 0, 90 * time.Second, ""},
		{"snooze, too short", durable.Snooze(time.Millisecond), durable.Pending, 0, time.Second, ""},
		{"retry after", durable.RetryAfter(17*time.Second, boom), durable.Pending, 1, 17 * time.Second, "*errors.errorString: boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return c.err })
				r.Publish("acme", "billing.invoice.paid", nil)
				r.Work()
				row := r.Row("acme", "mailer")
				if row.Status != c.status || row.Attempts != c.attempts || row.LastError != c.lastErr {
					t.Fatalf("%s, %d attempts, last error %q", row.Status, row.Attempts, row.LastError)
				}
				if c.wait == 0 {
					if !row.NextAttemptAt.IsZero() || len(r.Wakeups.All()) > 0 {
						t.Fatalf("next attempt at %v, wake-ups %v", row.NextAttemptAt, r.Wakeups.All())
					}
					return
				}
				want := database.At(r.Clock.Now().Add(c.wait))
				if !row.NextAttemptAt.Equal(want.Time) {
					t.Fatalf("next attempt at %v, want %v", row.NextAttemptAt, want)
				}
				wakeups := r.Wakeups.All()
				if len(wakeups) != 1 || wakeups[0].At.Before(want.Time) || wakeups[0].At.Sub(want.Time) >= time.Millisecond {
					t.Fatalf("wake-ups %v, want one within a millisecond after %v", wakeups, want)
				}
			})
		})
	}
}

// contract: D-15. The last RetryAfter is final: it counts.
func TestRetryAfterCounts(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			return durable.RetryAfter(time.Second, errors.New("busy"))
		}, durable.WithMaxAttempts(3))
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 3 {
			r.Work()
			r.Clock.Add(2 * time.Second)
		}
		if row := r.Row("acme", "mailer"); row.Status != durable.Dead || row.Attempts != 3 {
			t.Fatalf("%s, %d attempts", row.Status, row.Attempts)
		}
	})
}

// contract: D-15, D-20. A hundred snoozes are no crashes and no attempts.
func TestSnoozesSpendNothing(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		n := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			if n++; n <= 100 {
				return durable.Snooze(time.Minute)
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 101 {
			r.Work()
			r.Clock.Add(time.Minute + time.Millisecond)
		}
		row := r.Row("acme", "mailer")
		if row.Status != durable.Delivered || row.Attempts != 0 || row.Unfinished != 0 || row.Runs != 101 {
			t.Fatalf("%s, %d attempts, %d unfinished, %d runs", row.Status, row.Attempts, row.Unfinished, row.Runs)
		}
	})
}
