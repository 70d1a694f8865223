package durable_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-17, D-14, L-08. On SQLite transactional handlers run one after the other, and none's deadline begins while it waits for its
// turn: of ten that take 4 of their 5 s each, none is late. Who else wants to write, renewals first, gets in between.
func TestTransactionalHandlersTakeTurns(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
			note("begin")
			<-time.After(4 * time.Second)
			note("end")
			return add(ctx, tx)
		})
		ids := publishMany(r, 10, paid, "books")
		faults.After(func(op dbtest.Op) error {
			switch {
			case strings.Contains(op.SQL, "SET lease_until"):
				note("renewed")
			case strings.Contains(op.SQL, "SET id = 1"):
				note("written")
			}
			return nil
		})
		done := background(r, ids...)
		<-time.After(time.Second)
		begun := time.Now()
		go rig.Exec(t, db, `UPDATE account SET id = 1`)
		<-time.After(time.Second)
		if err := r.Deliveries.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begun); waited != 3*time.Second {
			t.Errorf("the renewal waited until %v, want only for the handler that was running", waited)
		}
		for range 3 {
			<-time.After(12 * time.Second)
			if err := r.Deliveries.Renew(t.Context()); err != nil {
				t.Error(err)
			}
		}
		ended(t, done, "the outcomes")
		wantBalance(t, db, 70)
		wantCount(t, r, 10, "loam.deliveries.delivered")
		wantCount(t, r, 0, "loam.deliveries.failed")
		if first := strings.Join(order[:5], " "); first != "begin end renewed written begin" {
			t.Errorf("the order is %v", first)
		}
		running := 0
		for _, what := range order {
			if running += map[string]int{"begin": 1, "end": -1}[what]; running > 1 {
				t.Fatalf("two at once: %v", order)
			}
		}
	})
}

// contract: D-17, J-01. Waiting for the write connection spends no attempt, however long it takes: here somebody holds it for three times
// as long as a call of the engine waits.
func TestATransactionalHandlerWaitsForItsTransaction(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Ledger.Lease = time.Hour })
		account(t, db)
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error { return add(ctx, tx) })
		r.Publish("acme", paid, nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		claimed := false
		faults.After(func(op dbtest.Op) error {
			if op.Kind != "commit" || claimed {
				return nil
			}
			claimed = true
			go func() {
				err := db.InTx(context.WithoutCancel(t.Context()), func(context.Context, *sql.Tx) error {
					<-time.After(200 * time.Second) // with a Wait of a minute here
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait() // until it stands at the gate, before the run
			return nil
		})
		begun := time.Now()
		r.Deliver(w)
		if waited := time.Since(begun); waited < 200*time.Second {
			t.Errorf("it waited %v: the test shows nothing", waited)
		}
		wantOnce(t, r, 1, 0)
		wantCount(t, r, 0, "loam.deliveries.failed")
	})
}

// contract: D-17, D-14, D-20. A stop does not wait for those whose turn has not come: they spend no attempt, have not run, and are woken
// again.
func TestStopWhileWaitingForATurn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		account(t, db)
		held, release := make(chan struct{}, 100), make(chan struct{})
		r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
			held <- struct{}{}
			<-release
			return add(ctx, tx)
		}, durable.WithTimeout(time.Minute))
		const rows = 8
		ids := publishMany(r, rows, paid, "books")
		done := background(r, ids...)
		running := 1
		if db.Dialect() == database.PostgreSQL {
			running = db.Write().Stats().MaxOpenConnections / 2
		}
		for range running {
			within(t, held, "a run")
		}
		r.Deliveries.Stop()
		if db.Dialect() == database.PostgreSQL { // where others can write meanwhile: they have their outcomes
			for len(r.Wakeups.All()) != rows-running {
				<-time.After(10 * time.Millisecond)
			}
		}
		close(release)
		ended(t, done, "the outcomes")
		wantBalance(t, db, 7*running)
		wantCount(t, r, int64(running), "loam.deliveries.delivered")
		pending := 0
		for _, row := range r.Rows("acme") {
			if row.Status == durable.Pending {
				pending++
				if row.Attempts != 0 || row.Unfinished != 0 || !row.NextAttemptAt.IsZero() {
					t.Errorf("%+v", row)
				}
			}
		}
		if pending != rows-running || len(held) != 0 || claims(t, r) != 0 {
			t.Errorf("%d are pending, %d more have run, %d claims", pending, len(held), claims(t, r))
		}
	})
}

// contract: D-17, L-08. On PostgreSQL transactional handlers run at once, on half of the connections: with all of those held, others publish,
// claims are renewed, and outcomes are written.
func TestTransactionalHandlersLeaveConnections(t *testing.T) {
	t.Parallel()
	r, _ := onPostgres(t)
	account(t, r.DB)
	half := r.DB.Write().Stats().MaxOpenConnections / 2
	held, release := make(chan struct{}, 100), make(chan struct{})
	var running, most atomic.Int32
	r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		held <- struct{}{}
		<-release
		return add(ctx, tx)
	})
	r.Registry.RegisterFunc("mailer", "billing.invoice.sent", returnNil)
	rows := 4 * half
	ids := publishMany(r, rows, paid, "books")
	done := background(r, ids...)
	for range half {
		within(t, held, "a run")
	}
	if err := r.Deliveries.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	r.Publish("acme", "billing.invoice.sent", nil)
	r.Work()
	if row := r.Row("acme", "mailer"); row.Status != durable.Delivered {
		t.Errorf("%+v", row)
	}
	close(release)
	ended(t, done, "the outcomes")
	wantBalance(t, r.DB, 7*rows)
	if n := int(most.Load()); n > half {
		t.Errorf("%d at once, want %d", n, half)
	}
}
