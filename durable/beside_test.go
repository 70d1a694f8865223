package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// A run whose outcome is committed, and whose answer was lost, is still in its process's table. A wake-up that comes then must
// not be lost: that outcome has inserted it, and inserts no other.
// model: 102
func TestAWakeUpBesideARunThatHasItsOutcome(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			if calls++; calls > 1 {
				return nil
			}
			lost := false
			faults.After(func(op dbtest.Op) error {
				if op.Kind != "commit" || lost {
					return nil
				}
				lost = true
				return errors.New("the answer is lost")
			})
			return durable.RetryAfter(0, errors.New("no"))
		})
		r.Publish("acme", paid, nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		done := make(chan error, 1)
		go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), w.IDs...) }()
		synctest.Wait() // the outcome is committed, its writer waits to try again
		r.Clock.Add(time.Millisecond)
		if r.Work() != 1 || calls != 1 {
			t.Fatalf("the outcome woke nobody; %d calls", calls)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r.Clock.Add(time.Minute)
		r.Work()
		if row := r.Row("acme", "mailer"); calls != 2 || row.Status != durable.Delivered {
			t.Errorf("%s after %d calls, attempts %d, wake-ups %v: only the sweep would find it", row.Status, calls, row.Attempts, r.Wakeups.All())
		}
	})
}
