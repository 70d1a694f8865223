package durable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// A job that lacks slots which a claim that is just being taken holds, and quick handlers, waits for all it needs: nothing is
// handed on. One that lacks those of handlers that run on takes what is free.
//
// contract: J-05
func TestAJobWaitsForSlotsThatAreAboutToBeFree(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{true, false} {
		t.Run(fmt.Sprintf("quick %v", quick), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
				r := rig.New(t, db, slotsOf(3))
				h := newHeld(t)
				r.Registry.Register("slow", "billing.invoice.sent", h)
				r.Registry.RegisterFunc("quick", paid, func(context.Context, events.Event) error { return nil })
				name, key := paid, "quick"
				if !quick {
					name, key = "billing.invoice.sent", "slow"
				}
				first, second := publishMany(r, 2, name, key), publishMany(r, 2, "billing.invoice.paid", "quick")
				second = second[len(second)-2:]
				slow := true
				faults.Before(func(op dbtest.Op) error {
					if slow && strings.Contains(op.SQL, "INSERT INTO processed_events") {
						slow = false
						time.Sleep(70 * time.Millisecond) // longer than a job waits for a handler
					}
					return nil
				})
				one := background(r, first...)
				synctest.Wait()
				began, two := time.Now(), background(r, second...)
				ended(t, two, "the second job")
				if waited := time.Since(began); waited > 150*time.Millisecond {
					t.Errorf("it took %v, want about the 70 ms of the claim and 20 ms more", waited)
				}
				switch rest := r.Wakeups.All(); {
				case quick && len(rest) != 0:
					t.Errorf("handed on %v, although there were soon slots for all", rest)
				case !quick && (len(rest) != 1 || len(rest[0].IDs) != 1):
					t.Errorf("handed on %v, want one row: a handler runs on", rest)
				}
				if !quick {
					h.result <- nil
					h.result <- nil
				}
				ended(t, one, "the first job")
			})
		})
	}
}

// A job that has more rows than there are slots does not wait for more when all are free.
//
// contract: J-05
func TestAJobDoesNotWaitForSlotsThatThereAreNot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, slotsOf(2))
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 5, paid, "mailer")
		began := time.Now()
		done := background(r, ids...)
		within(t, h.started, "the first run")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("it waited %v for slots", waited)
		}
		h.result <- nil
		h.result <- nil
		ended(t, done, "the end")
	})
}
