package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// account is a table of the application's with one balance, of 0.
func account(t *testing.T, db *database.DB) {
	t.Helper()
	rig.Exec(t, db, `CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)`)
	rig.Exec(t, db, `INSERT INTO account VALUES (1, 0)`)
}

// add is what the handlers of these tests write.
func add(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 7 WHERE id = 1`)
	return err
}

func balance(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	rig.Scan(t, db, `SELECT balance FROM account`, nil, &n)
	return n
}

// wantBalance checks what is committed.
func wantBalance(t *testing.T, db *database.DB, want int) {
	t.Helper()
	if got := balance(t, db); got != want {
		t.Errorf("the balance is %d, want %d", got, want)
	}
}

// contract: D-17, D-08, L-03, T-04, V-01, V-02, E-16. What a transactional handler writes, what it publishes, the ledger's mark and the
// row's state are one commit. What would open a second transaction is refused, and the tenant is the row's.
func TestATransactionalHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		commits := 0
		others := func() { wantBalance(t, db, 0) } // see none of it yet
		r.Registry.RegisterFunc("next", "billing.receipt.made", returnNil)
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, e events.Event) error {
			if id, _ := tenant.Require(ctx); id != "acme" || e.Payload["n"] != int64(3) {
				t.Errorf("the tenant is %q, the event %+v", id, e)
			}
			receipt, err := events.New(ctx, "billing.receipt.made", nil, rig.Limits)
			if err != nil {
				return err
			}
			for what, err := range map[string]error{
				"Capture": r.Deliveries.Capture(ctx, receipt),
				"InTx":    db.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }),
			} {
				if !errors.Is(err, events.ErrInTransaction) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := errors.Join(add(ctx, tx), r.Deliveries.CaptureTx(ctx, tx, receipt)); err != nil {
				return err
			}
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == "commit" {
					commits++
				}
				return nil
			})
			others()
			return nil
		})
		r.Publish("acme", paid, events.Payload{"n": 3})
		w, _ := r.Wakeups.Next(r.Clock.Now())
		r.Deliver(w)
		faults.Before(nil)
		wantBalance(t, db, 7)
		row := r.Row("acme", "books")
		if row.Status != durable.Delivered || row.Attempts != 0 || row.Unfinished != 0 || row.DeliveredAt != database.At(r.Clock.Now()) ||
			claimOf(t, db, row).Status != "done" || commits != 1 {
			t.Errorf("%+v, ledger %+v, %d commits", row, claimOf(t, db, row), commits)
		}
		if next := r.Row("acme", "next"); next.Status != durable.Pending || len(r.Wakeups.All()) != 1 {
			t.Errorf("the event that it published: %+v, wake-ups %v", next, r.Wakeups.All())
		}
		wantCount(t, r, 1, "loam.deliveries.delivered", "books")
		if spans := r.Spans.Ended(); len(spans) != 1 {
			t.Errorf("%d spans", len(spans))
		}
		r.Deliver(w) // an extra wake-up
		wantBalance(t, db, 7)
	})
}

// contract: D-17, D-09, D-10, D-13, D-15. Whatever else a transactional handler ends with, nothing that it wrote or published is there, and
// the outcome is as for every handler.
func TestATransactionalHandlerThatFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name     string
		end      func() error
		status   durable.Status
		attempts int
		wait     time.Duration
		text     string
	}{
		{"error", func() error { return boom }, durable.Pending, 1, 60 * time.Second, "*errors.errorString: boom"},
		{"panic", func() error { panicsWith("boom"); return nil }, durable.Pending, 1, 60 * time.Second, "*durable.PanicError: panic: boom"},
		{"goexit", func() error { endsItsGoroutine(); return nil }, durable.Pending, 1, 60 * time.Second, "Goexit"},
		{"snooze", func() error { return durable.Snooze(time.Hour) }, durable.Pending, 0, time.Hour, ""},
		{"park", func() error { return durable.Park(boom) }, durable.Dead, 1, 0, "*errors.errorString: boom"},
		{"retry after", func() error { return durable.RetryAfter(time.Hour, boom) }, durable.Pending, 1, time.Hour, "*errors.errorString: boom"},
		{"an error of its own from elsewhere", func() error { return unreachable{} }, durable.Pending, 1, 60 * time.Second, "no route"},
		{"a limit of its own", func() error { return context.DeadlineExceeded }, durable.Pending, 1, 60 * time.Second, "deadline"},
		{"a hostile error", func() error { return hostile{func() { panicsWith(1) }, func() { panicsWith(2) }} }, durable.Pending, 1, 60 * time.Second, "hostile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				account(t, db)
				r.Registry.RegisterFunc("next", "billing.receipt.made", returnNil)
				r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
					receipt, err := events.New(ctx, "billing.receipt.made", nil, rig.Limits)
					if err := errors.Join(err, add(ctx, tx), r.Deliveries.CaptureTx(ctx, tx, receipt)); err != nil {
						t.Error(err)
					}
					return c.end()
				})
				r.Publish("acme", paid, nil)
				r.Work()
				wantBalance(t, db, 0)
				row := r.Row("acme", "books") // and no row of next
				if row.Status != c.status || row.Attempts != c.attempts || row.Unfinished != 0 || !strings.Contains(row.LastError, c.text) ||
					claimOf(t, db, row).Status != "" || len(r.Rows("acme")) != 1 {
					t.Errorf("%+v, ledger %+v", row, claimOf(t, db, row))
				}
				want := database.Time{}
				if c.wait > 0 {
					want = database.At(r.Clock.Now().Add(c.wait))
				}
				if row.NextAttemptAt != want || len(r.Wakeups.All()) != map[bool]int{true: 1}[c.wait > 0] {
					t.Errorf("next attempt at %v, want %v; wake-ups %v", row.NextAttemptAt, want, r.Wakeups.All())
				}
			})
		})
	}
}

// unreachable is an error of the network's, as a handler has one that calls another service.
type unreachable struct{}

func (unreachable) Error() string   { return "no route" }
func (unreachable) Timeout() bool   { return true }
func (unreachable) Temporary() bool { return true }

// contract: D-17, L-02, L-03. A run that lost its claim before it could write its outcome leaves nothing: the handler's writes are rolled
// back, the other's claim is untouched, and it is counted.
func TestATransactionalHandlerThatLostItsClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		p, _ := process(t, r)
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error { return add(ctx, tx) })
		r.Publish("acme", paid, nil)
		begins := 0
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "begin" {
				if begins++; begins == 3 { // after the wake-up's and the claim's
					rig.Exec(t, p.DB, `UPDATE processed_events SET owner = 'other'`)
				}
			}
			return nil
		})
		w, _ := r.Wakeups.Next(r.Clock.Now())
		r.Deliver(w)
		wantBalance(t, db, 0)
		if row := r.Row("acme", "books"); row.Status != durable.Pending || row.Attempts != 0 || claimOf(t, db, row).Owner != "other" ||
			claimOf(t, db, row).Status != "in_progress" || len(r.Wakeups.All()) != 0 {
			t.Errorf("%+v, ledger %+v, wake-ups %v", row, claimOf(t, db, row), r.Wakeups.All())
		}
		wantCount(t, r, 1, "loam.claims.lost", "books")
		wantCount(t, r, 0, "loam.deliveries.delivered")
	})
}

// contract: D-17. A handler that goes on after an error of a statement has no whole transaction any more: it fails, and is not marked
// done. One that ends its transaction itself is parked at once, for each run would do it again.
func TestATransactionThatIsNotWhole(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		again := `INSERT INTO account VALUES (1, 0)`
		if db.Dialect() == database.SQLite { // which rolls back by itself only now and then
			again = `INSERT OR ROLLBACK INTO account VALUES (1, 0)`
		}
		r.Registry.RegisterTx("goes.on", "billing.invoice.paid", func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
			err := add(ctx, tx)
			if _, failed := tx.ExecContext(ctx, again); failed == nil {
				t.Error("the statement did not fail")
			}
			return err
		})
		r.Registry.RegisterTx("commits", "billing.invoice.sent", func(_ context.Context, tx *sql.Tx, _ events.Event) error { return tx.Commit() })
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Publish("acme", "billing.invoice.sent", nil)
		r.Work()
		wantBalance(t, db, 0)
		if row := r.Row("acme", "goes.on"); row.Status != durable.Pending || row.Attempts != 1 || claimOf(t, db, row).Status != "" {
			t.Errorf("%+v, ledger %+v", row, claimOf(t, db, row))
		}
		if row := r.Row("acme", "commits"); row.Status != durable.Dead || !strings.Contains(row.LastError, "ended its transaction itself") {
			t.Errorf("%+v", row)
		}
	})
}
