package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
)

// foreign is a transaction of somebody's that takes locks in an order that is not ours.
type foreign struct {
	t  *testing.T
	tx *sql.Tx
}

// interfere begins one. It never finds a deadlock itself: ours is the one that is rolled back.
func interfere(t *testing.T, db *database.DB) foreign {
	t.Helper()
	tx, err := db.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := foreign{t, tx}
	f.do(`SET LOCAL deadlock_timeout = '1h'`)
	t.Cleanup(func() { _ = tx.Rollback() })
	return f
}

func (f foreign) do(statement string, args ...any) {
	f.t.Helper()
	if _, err := f.tx.ExecContext(f.t.Context(), statement, args...); err != nil {
		f.t.Errorf("%s: %v", statement, err)
	}
}

// deadlocks waits until PostgreSQL has counted n of them.
func deadlocks(t *testing.T, db *database.DB, n int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for found := 0; found != n; {
		rig.Scan(t, db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`, nil, &found)
		if time.Now().After(deadline) {
			t.Fatalf("%d deadlocks, want %d: the test shows something else", found, n)
		}
	}
}

// contract: D-09, D-10, L-03. PostgreSQL rolls the transaction of an outcome back to end a deadlock: it is written again, and the
// handler does not run again. A failure is counted once.
// scenario: B078
func TestADeadlockInAnOutcome(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"success": nil, "failure": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := onPostgres(t)
			p, faults := process(t, r)
			calls := 0
			var other foreign
			p.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
				calls++
				other = interfere(t, r.DB)                            //nolint:contextcheck // it outlives the run
				other.do(`SELECT 1 FROM event_deliveries FOR UPDATE`) //nolint:contextcheck // likewise
				return result
			})
			p.Publish("acme", paid, nil)
			id := r.Row("acme", "mailer").ID
			freed := make(chan struct{})
			update := map[bool]string{true: "duration_ms = $4, updated_at = $3", false: "SET attempts = attempts + 1"}[result == nil]
			faults.Before(once(update, func() { // the ledger's row is changed, and the delivery's is to be
				go func() {
					defer close(freed)
					lockWait(t, r.DB, 1)
					other.do(`UPDATE processed_events SET owner = owner`)
					other.do(`ROLLBACK`)
				}()
			}))
			if err := p.Deliveries.Deliver(p.Ctx("acme"), id); err != nil {
				t.Fatal(err)
			}
			<-freed
			want, attempts := durable.Delivered, 0
			if result != nil {
				want, attempts = durable.Pending, 1
			}
			row := r.Row("acme", "mailer")
			if calls != 1 || row.Status != want || row.Attempts != attempts || row.Runs != 1 || row.Unfinished != 0 || claims(t, r) != 0 {
				t.Errorf("%d calls, %s, %d attempts, %d runs, %d unfinished, %d claims", calls, row.Status, row.Attempts, row.Runs, row.Unfinished, claims(t, r))
			}
			deadlocks(t, r.DB, 1)
		})
	}
}

// contract: D-04, D-05. A capture in a transaction of its own is repeated; in the caller's, the caller is told that it was in conflict,
// and nothing is there.
// scenario: B078
func TestADeadlockInACapture(t *testing.T) {
	t.Parallel()
	for _, callers := range []bool{false, true} {
		t.Run(map[bool]string{false: "its own transaction", true: "the caller's"}[callers], func(t *testing.T) {
			t.Parallel()
			r, _ := onPostgres(t)
			for _, key := range []string{"a", "b"} {
				r.Registry.RegisterFunc(key, paid, fine)
			}
			e, err := events.New(r.Ctx("acme"), paid, nil, rig.Limits)
			if err != nil {
				t.Fatal(err)
			}
			other, freed := interfere(t, r.DB), make(chan struct{})
			insert := func(key string) {
				other.do(`INSERT INTO event_deliveries (id, tenant_id, event_id, subscriber_key, event_name, queue, payload, created_at, updated_at)
					VALUES ($1, 'acme', $2, $1, 'x', 'x', '{}', now(), now())`, key, e.ID)
			}
			insert("b")
			go func() {
				defer close(freed)
				lockWait(t, r.DB, 1) // the capture has inserted a, and waits for b
				insert("a")
				other.do(`ROLLBACK`)
			}()
			want := 2
			if callers {
				want = 0
				err = r.DB.InTx(r.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error { return r.Deliveries.CaptureTx(ctx, tx, e) })
				if !errors.Is(err, database.ErrConflict) {
					t.Errorf("the caller is told %v", err)
				}
			} else if err = r.Deliveries.Capture(r.Ctx("acme"), e); err != nil {
				t.Error(err)
			}
			<-freed
			if rows := r.Rows("acme"); len(rows) != want || (want > 0) != (len(r.Wakeups.All()) > 0) {
				t.Errorf("%d rows, want %d; wake-ups %v", len(rows), want, r.Wakeups.All())
			}
			deadlocks(t, r.DB, 1)
		})
	}
}
