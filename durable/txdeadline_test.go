package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

const late = "*errors.errorString: durable: the handler's time limit is over"

// contract: D-14, D-16, D-17. A transactional handler has 5 s on SQLite, unless its registration, or a shorter limit of the engine's, says
// otherwise; on PostgreSQL it has the limit of every handler.
func TestTheLimitOfATransactionalHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for _, c := range []struct {
			own, engine, sqlite, postgres time.Duration
		}{
			{0, time.Minute, 5 * time.Second, time.Minute},
			{0, 3 * time.Second, 3 * time.Second, 3 * time.Second},
			{9 * time.Second, 3 * time.Second, 9 * time.Second, 9 * time.Second},
		} {
			r := durable.NewRegistry()
			var opts []durable.Option
			if c.own > 0 {
				opts = append(opts, durable.WithTimeout(c.own))
			}
			r.RegisterTx("books", paid, func(context.Context, *sql.Tx, events.Event) error { return nil }, opts...)
			r.RegisterFunc("mailer", paid, returnNil, opts...)
			want, plain := c.postgres, max(c.own, c.engine)
			if db.Dialect() == database.SQLite {
				want = c.sqlite
			}
			for key, want := range map[string]time.Duration{"books": want, "mailer": plain} {
				s, _ := r.HandlerFor(key)
				if got := s.Limit(db.Dialect(), c.engine); got != want || s.Transactional() != (key == "books") {
					t.Errorf("%+v: %s has %v, want %v", c, key, got, want)
				}
			}
		}
	})
}

// contract: D-14, D-17, E-16. At the end of its context the transaction is rolled back and its connection is free, in that moment,
// although the handler does not return; what the handler writes after it goes nowhere. It is stuck like any, and what it
// returns at last is a failure by its limit, also nil.
// scenario: B041
func TestATransactionalHandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  error
		text string
	}{
		"nil": {nil, late}, "an error": {codeError(1), late + ": code 1"}, "a panic": {nil, "*durable.PanicError: panic: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				account(t, db)
				r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
					if err := add(ctx, tx); err != nil {
						return err
					}
					end, _ := ctx.Deadline()
					if left := time.Until(end); left != 5*time.Second {
						t.Errorf("%v to the deadline", left)
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, durable.ErrTimeout) {
						t.Errorf("the cause is %v", cause)
					}
					<-time.After(7 * time.Second)
					if err := add(context.WithoutCancel(ctx), tx); !errors.Is(err, sql.ErrTxDone) {
						t.Errorf("it still has a transaction: %v", err)
					}
					if name == "a panic" {
						panicsWith("boom")
					}
					return c.end
				})
				r.Publish("acme", paid, nil)
				begun := time.Now()
				go r.Work()
				synctest.Wait()
				rig.Exec(t, db, `UPDATE account SET id = 1`) // waits for the connection
				if waited := time.Since(begun); waited != 5*time.Second {
					t.Errorf("the connection was free after %v", waited)
				}
				wantBalance(t, db, 0)
				row := r.Row("acme", "books")
				if claimOf(t, db, row).Status != "in_progress" {
					t.Error("its claim is gone before it has returned")
				}
				<-time.After(6 * time.Second)
				wantCount(t, r, 1, "loam.handlers.stuck", "books")
				if row := r.Row("acme", "books"); row.Attempts != 0 {
					t.Error("its outcome is written before it has returned")
				}
				<-time.After(2 * time.Second)
				row = r.Row("acme", "books")
				if row.Status != durable.Pending || row.Attempts != 1 || row.LastError != c.text || row.DurationMS != 12000 ||
					claimOf(t, db, row).Status != "" {
					t.Errorf("%+v, ledger %+v", row, claimOf(t, db, row))
				}
				wantBalance(t, db, 0)
			})
		})
	}
}

// contract: D-14, D-17, D-20, L-08. The same on both databases, whatever ends the context: the limit spends an attempt, a shutdown and a
// claim that is lost do not. A handler that returns the error of its context is no different.
func TestTheEndOfATransactionalHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause    error
		mindful  bool
		attempts int
		text     string
		taken    bool // by another, when it is lost
	}{
		"limit":                 {durable.ErrTimeout, false, 1, late, false},
		"limit, minded":         {durable.ErrTimeout, true, 1, late + ": context deadline exceeded", false},
		"shutdown":              {durable.ErrShutdown, false, 0, "", false},
		"shutdown, minded":      {durable.ErrShutdown, true, 0, "", false},
		"claim lost":            {durable.ErrClaimLost, false, 0, "", false},
		"claim lost and taken":  {durable.ErrClaimLost, false, 0, "", true},
		"claim lost and minded": {durable.ErrClaimLost, true, 0, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				limit := time.Minute
				if errors.Is(c.cause, durable.ErrTimeout) {
					limit = 50 * time.Millisecond
				}
				r := rig.New(t, db, func(d *durable.Config) {
					if errors.Is(c.cause, durable.ErrClaimLost) { // nobody renews it
						d.Ledger = &ledger.Ledger{Lease: 2 * time.Second, Margin: time.Second, Dialect: db.Dialect()}
					}
				})
				account(t, db)
				running, release := make(chan context.Context, 1), make(chan struct{})
				r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
					err := add(ctx, tx)
					running <- ctx
					if c.mindful {
						<-ctx.Done()
						return errors.Join(err, ctx.Err())
					}
					<-release
					return err
				}, durable.WithTimeout(limit))
				r.Publish("acme", paid, nil)
				row := r.Row("acme", "books")
				r.Wakeups.Clear()
				done := background(r, row.ID)
				ctx := within(t, running, "the run")
				if errors.Is(c.cause, durable.ErrShutdown) {
					r.Deliveries.Stop()
					r.Deliveries.Cancel()
				}
				<-ctx.Done()
				rig.Exec(t, db, `UPDATE account SET id = 1`) // the connection is free, and the row unlocked
				wantBalance(t, db, 0)
				if c.taken {
					rig.Exec(t, db, `UPDATE processed_events SET owner = 'other'`)
				}
				close(release)
				ended(t, done, "the outcome")
				if !errors.Is(context.Cause(ctx), c.cause) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				row = r.Row("acme", "books")
				crash := map[bool]int{true: 1}[errors.Is(c.cause, durable.ErrClaimLost)]
				if row.Status != durable.Pending || row.Attempts != c.attempts || row.LastError != c.text || row.Unfinished != crash {
					t.Errorf("%+v", row)
				}
				if c.taken != (len(r.Wakeups.All()) == 0) || c.taken != (claimOf(t, db, row).Owner == "other") || (claimOf(t, db, row).Owner == "") == c.taken {
					t.Errorf("ledger %+v, wake-ups %v", claimOf(t, db, row), r.Wakeups.All())
				}
				wantCount(t, r, int64(map[bool]int{true: 1}[c.taken]), "loam.claims.lost")
				wantBalance(t, db, 0)
			})
		})
	}
}
