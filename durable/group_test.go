package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// groupOf is how many successes a statement writes, 0 if it is another statement.
func groupOf(op dbtest.Op) int {
	if !strings.Contains(op.SQL, "SET status = 'done'") || !strings.Contains(op.SQL, "j.c0") {
		return 0
	}
	if tenants, isList := op.Args[1].Value.([]string); isList { // PostgreSQL has a list for each column
		return len(tenants)
	}
	var claims []any
	text, _ := op.Args[1].Value.(string)
	_ = json.Unmarshal([]byte(text), &claims)
	return len(claims)
}

// together runs 20 handlers that all return while the outcome of another run is being written, so that their own gather.
// between is called before they return; op sees each operation from then on. It returns how many the largest group had.
func together(t *testing.T, r *rig.Rig, faults *dbtest.Faults, between func(), op, answer func(dbtest.Op) error) int {
	t.Helper()
	const n = 20
	started, hold, returned := make(chan struct{}, n), make(chan struct{}), atomic.Int32{}
	r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
		started <- struct{}{}
		<-hold
		returned.Add(1)
		return nil
	})
	r.Registry.RegisterFunc("first", "billing.invoice.sent", func(context.Context, events.Event) error { return nil })
	ids := publishMany(r, n, paid, "mailer")
	r.Publish("acme", "billing.invoice.sent", nil)
	many := background(r, ids...)
	for range n {
		within(t, started, "a handler")
	}
	between()
	var led atomic.Bool
	var largest atomic.Int64
	faults.After(answer)
	faults.Before(func(o dbtest.Op) error {
		largest.Store(max(largest.Load(), int64(groupOf(o))))
		if strings.Contains(o.SQL, "SET status = 'done'") && led.CompareAndSwap(false, true) {
			close(hold)
			for end := time.Now().Add(20 * time.Second); returned.Load() < n && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond) // those that come later are in the next group
			return nil
		}
		return op(o)
	})
	if err := within(t, background(r, r.Row("acme", "first").ID), "the first"); err != nil {
		t.Fatal(err)
	}
	if err := within(t, many, "the others"); err != nil {
		t.Fatal(err)
	}
	faults.Before(nil)
	faults.After(nil)
	return int(largest.Load())
}

func fineOp(dbtest.Op) error { return nil }

// Successes that end together are committed together: each with its own token, its own row, its own duration. One whose claim
// was lost is refused, and one whose row is no longer pending is told so; the others are not touched by that.
//
// contract: D-08, L-03, L-05
func TestSuccessesAreWrittenTogether(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		n := together(t, r, faults, func() {
			rows := r.Rows("acme")
			rig.Exec(t, db, `UPDATE processed_events SET owner = 'another' WHERE event_id = $1`, rows[3].EventID)
			rig.Exec(t, db, `UPDATE event_deliveries SET status = 'dead', last_error = 'by hand' WHERE id = $1`, rows[7].ID)
		}, fineOp, fineOp)
		if n < 2 {
			t.Fatalf("the largest group had %d: nothing is shown", n)
		}
		for i, row := range r.Rows("acme") {
			want, done := durable.Delivered, "done"
			switch i {
			case 3:
				want, done = durable.Pending, "in_progress"
			case 7:
				want = durable.Dead
			}
			if c := claimOf(t, db, row); row.Status != want || c.Status != done || (want == durable.Delivered) == row.DeliveredAt.IsZero() {
				t.Errorf("row %d: %s, the ledger says %s: %+v", i, row.Status, c.Status, row)
			}
		}
		if lost, gone, ok := r.Count("loam.claims.lost"), r.Count("loam.deliveries.gone"), r.Count("loam.deliveries.delivered"); lost != 1 || gone != 1 || ok != 19 {
			t.Errorf("%d refused, %d gone, %d delivered; want 1, 1, 19", lost, gone, ok)
		}
	})
}

// When the commit of a group fails, or its answer is lost, each of it is tried alone: nothing is lost, and nothing runs again.
//
// contract: D-07, L-03
func TestAGroupThatFails(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(map[bool]string{false: "commit", true: "answer"}[after], func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
				r := rig.New(t, db)
				var grouped, failed atomic.Bool
				fail := func(op dbtest.Op) error {
					if groupOf(op) > 1 {
						grouped.Store(true)
					}
					if op.Kind == "commit" && grouped.Load() && failed.CompareAndSwap(false, true) {
						return errors.New("failed")
					}
					return nil
				}
				before, answer := fail, fineOp
				if after {
					before, answer = fineOp, fail
				}
				together(t, r, faults, func() {}, before, answer)
				if !failed.Load() {
					t.Fatal("no commit of a group has failed: nothing is shown")
				}
				for i, row := range r.Rows("acme") {
					if c := claimOf(t, db, row); row.Status != durable.Delivered || row.Runs != 1 || c.Status != "done" {
						t.Errorf("row %d: the ledger says %s: %+v", i, c.Status, row)
					}
				}
				if lost, ok := r.Count("loam.claims.lost"), r.Count("loam.deliveries.delivered"); lost != 0 || ok != 21 {
					t.Errorf("%d refused, %d delivered; want 0 and 21", lost, ok)
				}
			})
		})
	}
}
