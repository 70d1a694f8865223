package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// once runs Once for the key in a transaction, with an effect that can be counted, and returns what it said.
func once(t *testing.T, db *database.DB, k ledger.Key, end error) (ran bool, err error) {
	t.Helper()
	err = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
		ran, err = ledger.Once(ctx, tx, k.Tenant, k.EventID, k.Handler, func(ctx context.Context) error {
			if got := tenant.From(ctx); got != k.Tenant {
				t.Errorf("it runs in the tenant %q", got)
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO loam_tenants VALUES ($1, $2)`, k.Tenant+k.EventID+k.Handler, database.At(time.Now()))
			return errors.Join(err, end)
		})
		return err
	})
	return ran, err
}

// effects counts what once has left.
func effects(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	rig.Scan(t, db, `SELECT count(*) FROM loam_tenants`, nil, &n)
	return n
}

// contract: L-01, L-05. The first runs, and no later one; tenants, events and handlers have nothing to do with each other. The
// mark is one that deliveries respect: what is done so is not claimed.
func TestOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		long := strings.Repeat("x", 200)
		keys := []ledger.Key{
			key,
			{Tenant: "globex", EventID: "e1", Handler: "mailer"},
			{Tenant: "acme", EventID: "e2", Handler: "mailer"},
			{Tenant: "acme", EventID: "e1", Handler: "other"},
			{Tenant: "ü'; --", EventID: "☃ \"%", Handler: " "},
			{Tenant: long, EventID: long, Handler: long},
		}
		before := time.Now().UnixMilli()
		for _, k := range keys {
			for i, want := range []bool{true, false, false} {
				if ran, err := once(t, db, k, nil); ran != want || err != nil {
					t.Errorf("call %d of %v: ran %v, %v", i+1, k, ran, err)
				}
			}
		}
		if n := effects(t, db); n != len(keys) {
			t.Errorf("%d effects of %d keys", n, len(keys))
		}
		var n, first, last int64
		rig.Scan(t, db, `SELECT count(*), min(processed_at), max(processed_at) FROM processed_events
			WHERE status = 'done' AND started_at = processed_at AND lease_until = processed_at AND owner <> ''`, nil, &n, &first, &last)
		if n != int64(len(keys)) || first < before || last > time.Now().UnixMilli() {
			t.Errorf("%d marks, from %d to %d; now it is %d", n, first, last, time.Now().UnixMilli())
		}
		if got := claim(t, db, time.Now().Add(time.Hour), "me", keys...); len(got) > 0 {
			t.Errorf("claimed %v", got)
		}
	})
}

// contract: L-02. While a delivery has the key, Once runs nothing and says so, also when its lease is over; afterwards it goes
// by what became of that. The transaction goes on in each case: what is there already is no error to the database.
// scenario: B101
func TestOnceMeetsARow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for i, c := range []struct {
			status ledger.Status
			lease  int64
			want   error
		}{
			{ledger.InProgress, time.Now().Add(time.Minute).UnixMilli(), ledger.ErrBusy},
			{ledger.InProgress, 1, ledger.ErrBusy},
			{ledger.Done, 1, nil},
		} {
			has(t, db, key, c.status, 1, c.lease, "you")
			before := rows(t, db)
			in(t, db, func(ctx context.Context, tx *sql.Tx) (int, error) {
				ran, err := ledger.Once(ctx, tx, key.Tenant, key.EventID, key.Handler, func(context.Context) error { panic("run") })
				if ran || !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), key.EventID) {
					t.Errorf("%s until %d: ran %v, %v", c.status, c.lease, ran, err)
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO loam_tenants VALUES ($1, $2)`, fmt.Sprint("t", i), database.At(start)); err != nil {
					return 0, err
				}
				var n int
				return n, tx.QueryRowContext(ctx, `SELECT count(*) FROM loam_tenants`).Scan(&n)
			})
			if after := rows(t, db); !slices.Equal(after, before) || effects(t, db) != i+1 {
				t.Errorf("the row was %v and is %v; %d transactions are there", before, after, effects(t, db))
			}
		}
		in(t, db, func(ctx context.Context, tx *sql.Tx) (int, error) { return 0, led(db).Forget(ctx, tx, key) })
		if ran, err := once(t, db, key, nil); !ran || err != nil {
			t.Errorf("when the claim is gone: ran %v, %v", ran, err)
		}
	})
}

// An error and a panic of the function come back as they are, and the rollback takes the mark along: the event runs again.
func TestOnceForgetsWhatWasRolledBack(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		boom := errors.New("boom")
		if ran, err := once(t, db, key, boom); !ran || !errors.Is(err, boom) {
			t.Errorf("ran %v, %v", ran, err)
		}
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("the panic became %v", p)
				}
			}()
			_ = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := ledger.Once(ctx, tx, key.Tenant, key.EventID, key.Handler, func(context.Context) error { panic("boom") })
				return err
			})
		}()
		if left := rows(t, db); len(left) > 0 || effects(t, db) > 0 {
			t.Errorf("left: %v and %d effects", left, effects(t, db))
		}
		if ran, err := once(t, db, key, nil); !ran || err != nil || effects(t, db) != 1 {
			t.Errorf("again: ran %v, %v, %d effects", ran, err, effects(t, db))
		}
	})
}

// contract: L-02. Of two transactions at once the second waits for the first: it does nothing if that commits, and runs if it
// rolls back.
func TestTwoOnceAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		boom := errors.New("boom")
		for name, c := range map[string]struct {
			end  error
			want bool
		}{"commits": {nil, false}, "rolls back": {boom, true}} {
			k := ledger.Key{Tenant: "acme", EventID: name, Handler: "mailer"}
			begun, release, first, second := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan bool, 1)
			go func() {
				first <- db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := ledger.Once(ctx, tx, k.Tenant, k.EventID, k.Handler, func(context.Context) error {
						close(begun)
						<-release
						return c.end
					})
					return err
				})
			}()
			<-begun
			go func() {
				ran, err := once(t, db, k, nil)
				if err != nil {
					t.Error(err)
				}
				second <- ran
			}()
			for db.Dialect() == database.PostgreSQL { // until it waits; on SQLite it waits for its turn to write
				var waiting int
				rig.Scan(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &waiting)
				if waiting > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			select {
			case ran := <-second:
				t.Errorf("the second did not wait: ran %v", ran)
				second <- ran
			default:
			}
			close(release)
			if err := <-first; !errors.Is(err, c.end) {
				t.Errorf("the first: %v", err)
			}
			if ran := <-second; ran != c.want {
				t.Errorf("the first %s: the second ran: %v", name, ran)
			}
		}
		if n := effects(t, db); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// What cannot be a key is refused with all that is wrong, before the database is asked; what fails there is said.
func TestMistakesOfOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		never := func(context.Context) error { panic("run") }
		long := strings.Repeat("x", 201)
		down := errors.New("down")
		in(t, db, func(ctx context.Context, tx *sql.Tx) (int, error) {
			faults.Before(func(op dbtest.Op) error { return errors.New("asked: " + op.SQL) })
			defer faults.Before(nil)
			for _, c := range []struct {
				tenant, event, handler string
				want                   []string
			}{
				{"", "", "", []string{"tenant id: it is empty", "the event id is empty", "the handler is empty"}},
				{long, long, long, []string{"tenant id: 201 bytes", "the event id has 201 bytes, at most 200", "the handler has 201 bytes, at most 200"}},
				{"a\xff", "a\xff", "a\xff", []string{"tenant id: \"a\\xff\"", `the event id "a\xff"`, `the handler "a\xff" is not valid UTF-8`}},
				{"a\x00", "a\x00", "a\x00", []string{`contains NUL`, `the event id "a\x00" is`, `the handler "a\x00" is`}},
			} {
				ran, err := ledger.Once(ctx, tx, c.tenant, c.event, c.handler, never)
				for _, text := range c.want {
					if ran || !errors.Is(err, tenant.ErrInvalidID) || !strings.Contains(err.Error(), text) {
						t.Errorf("ran %v, %v: it does not say %q", ran, err, text)
					}
				}
			}
			if _, err := ledger.Once(ctx, nil, "acme", "e1", "mailer", never); err == nil || !strings.Contains(err.Error(), "nil") {
				t.Errorf("no transaction: %v", err)
			}
			if _, err := ledger.Once(ctx, tx, "acme", "e1", "mailer", nil); err == nil || !strings.Contains(err.Error(), "nil") {
				t.Errorf("no function: %v", err)
			}
			return 0, nil
		})
		has(t, db, key, ledger.Done, 1, 1, "you")
		for text, c := range map[string]struct{ err, want error }{
			"INSERT INTO processed_events": {down, down},
			"SELECT status FROM":           {down, down},
			"SELECT status":                {sql.ErrNoRows, ledger.ErrBusy}, // the row has gone meanwhile
		} {
			faults.Before(func(op dbtest.Op) error {
				if strings.HasPrefix(op.SQL, text) {
					return c.err
				}
				return nil
			})
			if ran, err := once(t, db, key, nil); ran || !errors.Is(err, c.want) {
				t.Errorf("%s fails: ran %v, %v", text, ran, err)
			}
			faults.Before(nil)
		}
	})
}
