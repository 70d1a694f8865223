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
)

// wantUndone checks that a run has left nothing, spent no attempt, and comes again a second later.
func wantUndone(t *testing.T, r *rig.Rig) {
	t.Helper()
	wantBalance(t, r.DB, 0)
	row := r.Row("acme", "books")
	next := database.At(r.Clock.Now().Add(time.Second))
	if row.Status != durable.Pending || row.Attempts != 0 || row.Unfinished != 0 || row.LastError != "" || row.NextAttemptAt != next ||
		claimOf(t, r.DB, row).Status != "" {
		t.Errorf("%+v, want it pending until %v; ledger %+v", row, next, claimOf(t, r.DB, row))
	}
	if w := r.Wakeups.All(); len(w) != 1 || w[0].At.Before(next.Time) || w[0].At.After(next.Add(time.Millisecond)) {
		t.Errorf("wake-ups %v, want one at %v", w, next)
	}
	if n := len(r.Logs.Lines("WARN", "it will run again", "delivery="+row.ID)); n != 1 {
		t.Errorf("%d lines say that it runs again", n)
	}
	wantCount(t, r, 0, "loam.deliveries.failed")
	wantCount(t, r, 0, "loam.claims.lost")
}

// wantOnce checks that the delivery has succeeded, and what it wrote is there once.
func wantOnce(t *testing.T, r *rig.Rig, runs, attempts int) {
	t.Helper()
	wantBalance(t, r.DB, 7)
	row := r.Row("acme", "books")
	if row.Status != durable.Delivered || row.Runs != runs || row.Attempts != attempts || row.Unfinished != 0 || claimOf(t, r.DB, row).Status != "done" ||
		len(r.Wakeups.All()) != 0 {
		t.Errorf("%+v, want %d runs and %d attempts; ledger %+v, wake-ups %v", row, runs, attempts, claimOf(t, r.DB, row), r.Wakeups.All())
	}
	wantCount(t, r, 1, "loam.deliveries.delivered")
}

// deliverOne delivers the first wake-up that is due.
func deliverOne(r *rig.Rig) {
	r.T.Helper()
	w, ok := r.Wakeups.Next(r.Clock.Now())
	if !ok {
		r.T.Fatal("nothing is due")
	}
	r.Deliver(w)
}

// contract: D-17, D-20, L-03. The answer of the commit is lost. The next transaction says what became of it: committed, it is a success
// and nothing runs again; not committed, it runs again and no attempt is spent; and if another has taken the claim
// meanwhile, this run has no say.
func TestALostAnswerOfATransactionalHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ committed, taken bool }{
		"committed": {committed: true}, "not committed": {}, "not committed, and taken": {taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
				r := rig.New(t, db)
				account(t, db)
				other, _ := process(t, r)
				take := func() { rig.Exec(t, other.DB, `UPDATE processed_events SET owner = 'other'`) }
				lost, failures := false, 0
				lose := func(op dbtest.Op) error {
					if op.Kind != "commit" || lost {
						return nil
					}
					lost = true
					if !c.committed {
						return errors.New("the commit fails")
					}
					return errors.New("the answer is lost")
				}
				r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
					if lost {
						return add(ctx, tx)
					}
					faults.Before(func(op dbtest.Op) error {
						switch {
						case !lost && !c.committed:
							return lose(op)
						case lost && op.Kind == "begin" && failures < 2: // and the look fails at first
							failures++
							return errors.New("no connection")
						case lost && op.Kind == "begin" && c.taken && failures == 2:
							failures++
							take()
						}
						return nil
					})
					if c.committed {
						faults.After(lose)
					}
					return add(ctx, tx)
				})
				r.Publish("acme", paid, nil)
				deliverOne(r)
				switch {
				case c.committed:
					wantOnce(t, r, 1, 0)
				case c.taken:
					wantBalance(t, db, 0)
					if row := r.Row("acme", "books"); row.Status != durable.Pending || claimOf(t, db, row).Owner != "other" || len(r.Wakeups.All()) != 0 {
						t.Errorf("%+v, ledger %+v", row, claimOf(t, db, row))
					}
				default:
					wantUndone(t, r)
					r.Clock.Add(1001 * time.Millisecond)
					deliverOne(r)
					wantOnce(t, r, 2, 0)
				}
				if failures < 2 {
					t.Errorf("the look did not fail: the test shows less than it should")
				}
			})
		})
	}
}

// contract: D-17. On PostgreSQL the commit whose answer was lost can still be on its way when it is looked for. The look waits for it.
func TestACommitThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r, faults := onPostgres(t)
	account(t, r.DB)
	r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error { return add(ctx, tx) })
	r.Publish("acme", paid, nil)
	row := r.Row("acme", "books")
	commits, committed := 0, make(chan struct{})
	faults.Before(func(op dbtest.Op) error {
		if op.Kind != "commit" {
			return nil
		}
		if commits++; commits != 3 { // after the wake-up's and the claim's
			return nil
		}
		// Another session becomes that transaction: it waits for the locks that the rollback gives up here, and commits
		// only when the look waits for them.
		owner := claimOf(t, r.DB, row).Owner
		other, written := interfere(t, r.DB), make(chan struct{})
		go func() {
			defer close(written)
			other.do(`UPDATE processed_events SET status = 'done', processed_at = 1 WHERE owner = $1`, owner)
			other.do(`UPDATE event_deliveries SET status = 'delivered', unfinished = 0`)
			other.do(`UPDATE account SET balance = balance + 7`)
		}()
		lockWait(t, r.DB, 1)
		faults.Before(once("DELETE FROM processed_events", func() {
			<-written
			go func() {
				defer close(committed)
				lockWait(t, r.DB, 1)
				other.do(`COMMIT`)
			}()
		}))
		return errors.New("the answer is lost")
	})
	deliverOne(r)
	<-committed
	wantOnce(t, r, 1, 0)
}

// contract: D-17, D-09. A commit that the database refuses for what the handler has written is the handler's failure, and spends an
// attempt.
func TestACommitThatIsRefused(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		rig.Exec(t, db, `CREATE TABLE booking (account BIGINT REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED)`)
		id := 2
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES ($1)`, id)
			return errors.Join(err, add(ctx, tx))
		})
		r.Publish("acme", paid, nil)
		deliverOne(r)
		wantBalance(t, db, 0)
		row := r.Row("acme", "books")
		if row.Status != durable.Pending || row.Attempts != 1 || row.Unfinished != 0 || !strings.Contains(row.LastError, "commit: ") ||
			!strings.Contains(strings.ToLower(row.LastError), "foreign key") || len(row.History()) != 1 || claimOf(t, db, row).Status != "" {
			t.Errorf("%+v", row)
		}
		wantCount(t, r, 1, "loam.deliveries.failed", "books")
		id = 1
		r.Clock.Add(time.Minute + time.Millisecond)
		deliverOne(r)
		wantOnce(t, r, 2, 1)
	})
}

// state is an error as PostgreSQL's driver makes them.
type state string

func (s state) Error() string    { return "state " + string(s) }
func (s state) SQLState() string { return string(s) }

// contract: D-17, J-01. A conflict, or a database that is away, wherever in the transaction: no attempt is spent, and it runs again
// after a second. Before the handler has begun, it is only tried again.
func TestATransactionThatIsUndone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, sql string
		err       error
	}{
		"a conflict of the handler's":           {"exec", "UPDATE account", state("40P01")},
		"a busy database, of the handler's":     {"exec", "UPDATE account", database.ErrBusy},
		"a full disk, of the handler's":         {"exec", "UPDATE account", database.ErrFull},
		"a conflict at the ledger":              {"exec", "SET status = 'done'", state("40001")},
		"an unreachable database at the ledger": {"exec", "SET status = 'done'", state("57P01")},
		"a conflict at the row":                 {"exec", "SET status = 'delivered'", state("40001")},
		"a conflict at the commit":              {"commit", "", state("40001")},
		"an unreachable database at the commit": {"commit", "", state("57P01")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
				r := rig.New(t, db)
				account(t, db)
				failed := false
				r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
					faults.Before(func(op dbtest.Op) error {
						if failed || op.Kind != c.kind || !strings.Contains(op.SQL, c.sql) {
							return nil
						}
						failed = true
						return c.err
					})
					return add(ctx, tx)
				})
				r.Publish("acme", paid, nil)
				deliverOne(r)
				wantUndone(t, r)
				r.Clock.Add(1001 * time.Millisecond)
				deliverOne(r)
				wantOnce(t, r, 2, 0)
			})
		})
	}
	t.Run("before the handler", func(t *testing.T) {
		t.Parallel()
		dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
			r := rig.New(t, db)
			account(t, db)
			r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error { return add(ctx, tx) })
			r.Publish("acme", paid, nil)
			begins := 0
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == "begin" {
					if begins++; begins == 3 || begins == 4 { // after the wake-up's and the claim's
						return errors.New("no connection")
					}
				}
				return nil
			})
			deliverOne(r)
			wantOnce(t, r, 1, 0)
		})
	})
}

// contract: D-17. A connection that breaks under the handler is the database's fault, whatever the handler makes of it.
func TestATransactionWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	r, _ := onPostgres(t)
	account(t, r.DB)
	broken := false
	kill := func(pid int) {
		rig.Scan(t, r.DB, `SELECT 1 FROM pg_terminate_backend($1, 10000)`, []any{pid}, new(int))
	}
	r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
		var pid int
		if err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil || broken {
			return errors.Join(err, add(ctx, tx))
		}
		broken = true
		kill(pid)
		if add(ctx, tx) == nil {
			t.Error("the connection is there")
		}
		return errors.New("the books are closed")
	})
	r.Publish("acme", paid, nil)
	deliverOne(r)
	wantUndone(t, r)
	r.Clock.Add(1001 * time.Millisecond)
	deliverOne(r)
	wantOnce(t, r, 2, 0)
}
