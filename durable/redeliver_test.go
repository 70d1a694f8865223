package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// deadRow makes a delivery of acme that is dead after one failure, with the values that a redelivery must clear.
func deadRow(t *testing.T, r *rig.Rig) durable.EventDelivery {
	t.Helper()
	r.Publish("acme", paid, events.Payload{"invoice_id": 7})
	r.Work()
	rig.Exec(t, r.DB, `UPDATE event_deliveries SET attempts = 5, unfinished = 3, next_attempt_at = $1, delivered_at = $1, discarded_at = $1
		WHERE status = 'dead'`, database.At(r.Clock.Now().Add(time.Hour)))
	return r.Rows("acme")[len(r.Rows("acme"))-1]
}

// contract: A-03, D-20, D-25. Redelivery clears what the row has of its death, deletes the ledger's row, whatever that says, and
// wakes the row. What it was, and its history, stay.
// model: 70
func TestRedeliver(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var result error
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return result
		}, durable.WithMaxAttempts(1))
		for _, ledger := range []string{"", "in_progress", "done"} {
			calls, result = 0, errors.New("no")
			old := deadRow(t, r)
			if ledger != "" {
				rig.Exec(t, db, `INSERT INTO processed_events VALUES ('acme', $1, 'mailer', $2, $3, $4, 'somebody', $3)`,
					old.EventID, ledger, r.Clock.Now().UnixMilli(), r.Clock.Now().UnixMilli()+60_000)
			}
			r.Clock.Add(time.Hour)
			if err := r.Deliveries.Redeliver(r.Ctx("acme"), old.ID); err != nil {
				t.Fatal(err)
			}
			row, err := r.Deliveries.Get(r.Ctx("acme"), old.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := old
			want.Status, want.Attempts, want.Unfinished, want.LastError = durable.Pending, 0, 0, ""
			want.NextAttemptAt, want.DeliveredAt, want.DiscardedAt = database.Time{}, database.Time{}, database.Time{}
			want.UpdatedAt = database.At(r.Clock.Now())
			if row != want {
				t.Errorf("ledger %q: redelivered\n%+v, want\n%+v", ledger, row, want)
			}
			var discarded sql.NullString
			rig.Scan(t, db, `SELECT discarded_at FROM event_deliveries WHERE id = $1`, []any{row.ID}, &discarded)
			if discarded.Valid || claimOf(t, db, row).Status != "" || len(row.History()) != 1 {
				t.Errorf("ledger %q: discarded at %v, ledger %+v, history %v", ledger, discarded, claimOf(t, db, row), row.History())
			}
			w := r.Wakeups.All()
			if len(w) != 1 || w[0].Tenant != "acme" || fmt.Sprint(w[0].IDs) != fmt.Sprint([]string{row.ID}) || !w[0].At.IsZero() ||
				w[0].Queue != durable.DefaultQueue {
				t.Errorf("ledger %q: wake-ups %v", ledger, w)
			}
			result = nil
			r.Work()
			if row, err = r.Deliveries.Get(r.Ctx("acme"), old.ID); row.Status != durable.Delivered || calls != 2 || err != nil {
				t.Errorf("ledger %q: in the end %s after %d runs, %v", ledger, row.Status, calls, err)
			}
		}
	})
}

// contract: A-03, T-05. Only a dead row of one's own tenant: for any other there is an error, and nothing is changed.
// scenario: B079
func TestWhatIsNotRedelivered(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, func(_ context.Context, e events.Event) error {
			if e.TenantID == "globex" {
				return errors.New("a secret of globex")
			}
			return nil
		}, durable.WithMaxAttempts(1))
		r.Publish("globex", paid, nil)
		r.Publish("acme", paid, nil)
		r.Work()
		delivered, dead := r.Row("acme", "mailer").ID, r.Row("globex", "mailer").ID
		r.Publish("acme", paid, nil)
		pending := r.Rows("acme")[1].ID
		r.Wakeups.Clear()
		before := allRows(t, db)
		for _, tc := range []struct {
			name, id string
			want     error
		}{
			{"delivered", delivered, durable.ErrNotDead},
			{"pending", pending, durable.ErrNotDead},
			{"another tenant's", dead, durable.ErrNotFound},
			{"nobody's", "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495", durable.ErrNotFound},
			{"no id", "", durable.ErrNotFound},
		} {
			err := r.Deliveries.Redeliver(r.Ctx("acme"), tc.id)
			if !errors.Is(err, tc.want) || strings.Contains(err.Error(), "globex") {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
			if after := allRows(t, db); after != before || len(r.Wakeups.All()) != 0 {
				t.Fatalf("%s: something was changed:\n%s\n%s", tc.name, before, after)
			}
		}
	})
}

// contract: A-03. Of two operators at once one redelivers, the other is told; there is one wake-up.
func TestTwoOperatorsRedeliver(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return errors.New("no") }, durable.WithMaxAttempts(1))
		other, _ := process(t, r)
		for range 10 {
			row := deadRow(t, r)
			got := make(chan error, 2)
			for _, p := range []*rig.Rig{r, other} {
				go func() { got <- p.Deliveries.Redeliver(p.Ctx("acme"), row.ID) }()
			}
			one, two := within(t, got, "an answer"), within(t, got, "the other answer")
			if one != nil {
				one, two = two, one
			}
			if one != nil || !errors.Is(two, durable.ErrNotDead) || len(r.Wakeups.All()) != 1 {
				t.Fatalf("%v and %v, wake-ups %v", one, two, r.Wakeups.All())
			}
			r.Work()
		}
	})
}

// contract: A-03. It is one transaction: without its wake-up there is no redelivery; and it is not a part of another one.
func TestRedeliveryIsOneTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return errors.New("no") }, durable.WithMaxAttempts(1))
		row := deadRow(t, r)
		before, full := allRows(t, db), errors.New("the queue is full")
		r.Wakeups.Fail = func(durable.Wakeup) error { return full }
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), row.ID); !errors.Is(err, full) {
			t.Errorf("without a wake-up: %v", err)
		}
		r.Wakeups.Fail = nil
		err := db.InTx(r.Ctx("acme"), func(ctx context.Context, _ *sql.Tx) error { return r.Deliveries.Redeliver(ctx, row.ID) })
		if !errors.Is(err, events.ErrInTransaction) {
			t.Errorf("in a transaction: %v", err)
		}
		if after := allRows(t, db); after != before || len(r.Wakeups.All()) != 0 {
			t.Errorf("something was changed:\n%s\n%s", before, after)
		}
	})
}

// contract: D-25, L-03, A-03. A row that was parked takes its claim along, and a redelivery too: an owner that was suspended
// meanwhile writes nothing, neither on the dead row nor on the one that is pending again.
func TestAStaleOwnerAfterAFinalState(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		old, _ := process(t, r) // an older build, which does not know the key
		strict, _ := process(t, r, knows(r), func(c *durable.Config) { c.CrashLimit = 0 })
		for i, parks := range []*rig.Rig{old, strict} {
			for j, again := range []bool{false, true} {
				r.Publish("acme", paid, nil)
				row := r.Rows("acme")[2*i+j]
				done := background(r, row.ID)
				within(t, h.started, "the run")
				r.Clock.Add(rig.Lease + rig.Margin)
				ended(t, background(parks, row.ID), "the parking")
				if row = r.Rows("acme")[2*i+j]; row.Status != durable.Dead || claimOf(t, db, row).Status != "" {
					t.Fatalf("not parked: %+v, %+v", row, claimOf(t, db, row))
				}
				if again {
					if err := r.Deliveries.Redeliver(r.Ctx("acme"), row.ID); err != nil {
						t.Fatal(err)
					}
				}
				before := allRows(t, db)
				h.result <- nil
				ended(t, done, "the late outcome")
				if after := allRows(t, db); after != before {
					t.Errorf("redelivered %v: the late outcome was written:\n%s\n%s", again, before, after)
				}
				r.Wakeups.Clear()
			}
		}
	})
}
