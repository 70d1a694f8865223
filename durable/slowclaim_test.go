package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

// contract: L-08, D-20. A claim whose transaction took longer than its lease is not run: others may have taken it over. Its start
// counts like a crash, and the row is woken again.
func TestAClaimThatTookLongerThanItsLease(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) {
			c.Ledger = &ledger.Ledger{Lease: 300 * time.Millisecond, Margin: 100 * time.Millisecond, Dialect: db.Dialect()}
		})
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return nil
		})
		r.Publish("acme", paid, nil)
		slow := true
		faults.Before(func(op dbtest.Op) error {
			if slow && op.Kind == "commit" {
				slow = false
				<-time.After(250 * time.Millisecond) // the lease less the margin is over
			}
			return nil
		})
		w, _ := r.Wakeups.Next(r.Clock.Now())
		slow = true
		r.Deliver(w)
		row := r.Row("acme", "mailer")
		if calls != 0 || row.Status != durable.Pending || row.Attempts != 0 || row.Runs != 1 || row.Unfinished != 1 || len(r.Wakeups.All()) != 1 {
			t.Fatalf("%d calls, wake-ups %v, %+v", calls, r.Wakeups.All(), row)
		}
		r.Work()
		if row = r.Row("acme", "mailer"); calls != 1 || row.Status != durable.Delivered || row.Attempts != 0 {
			t.Errorf("in the end %d calls, %+v", calls, row)
		}
	})
}
