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

// contract: D-09, D-10, D-12, D-18. An error whose text has a NUL, which PostgreSQL cannot hold, is a failure like any other: it is
// recorded each time, with the NUL replaced, the row follows its schedule, and the fifth is final.
// scenario: B143
func TestAnErrorWithNULFollowsTheSchedule(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			runs++
			return errors.New("boom\x00bar")
		})
		r.Publish("acme", paid, nil)
		const text = "*errors.errorString: boom\uFFFDbar"
		waits := []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 0}
		for i, wait := range waits {
			start := r.Clock.Now()
			if n := r.Work(); n != 1 || runs != i+1 {
				t.Fatalf("failure %d: %d wake-ups, %d runs", i+1, n, runs)
			}
			row := r.Row("acme", "mailer")
			status, next := durable.Pending, database.At(start.Add(wait))
			if wait == 0 {
				status, next = durable.Dead, database.Time{}
			}
			if row.Status != status || row.Attempts != i+1 || row.Unfinished != 0 || row.NextAttemptAt != next || row.LastError != text {
				t.Errorf("after failure %d the row is %+v, want %s and next %v", i+1, row, status, next)
			}
			if h := row.History(); len(h) != i+1 || h[i].Run != i+1 || h[i].Error != text {
				t.Errorf("after failure %d the history is %+v", i+1, h)
			}
			if n := claims(t, r); n != 0 {
				t.Errorf("after failure %d a claim is held", i+1)
			}
			if wait > 0 {
				r.Clock.Add(wait - time.Second)
				if r.Work(); runs != i+1 {
					t.Errorf("run %d came early", runs)
				}
				r.Clock.Add(2 * time.Second) // River's resolution is a millisecond
			}
		}
		if left := r.Wakeups.All(); len(left) != 0 {
			t.Errorf("a dead row is woken by %v", left)
		}
	})
}
