package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func init() {
	children["booker"] = booker
	children["committer"] = committer
}

const (
	txKills = 50
	txBatch = 12 // events for each kill
)

// book adds an event's amount to the balance, in two steps with some time between, and notes that it did.
func book(ctx context.Context, tx *sql.Tx, e events.Event) error {
	var before int64
	if err := tx.QueryRowContext(ctx, `SELECT amount FROM balance WHERE id = 1`).Scan(&before); err != nil {
		return err
	}
	amount, ok := e.Payload["amount"].(int64)
	if !ok {
		return fmt.Errorf("the amount is %v", e.Payload["amount"])
	}
	if _, err := tx.ExecContext(ctx, `UPDATE balance SET amount = amount + $1 WHERE id = 1`, amount); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(rand.IntN(20_000)) * time.Microsecond): //nolint:gosec // nothing secret about it
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO booked (event_id) VALUES ($1)`, e.ID)
	return err
}

// txLease is a short lease, with as much time for a transactional handler as it leaves on SQLite. A kill meets few rows, so
// that few are woken alone later.
func txLease(c *loam.Config) {
	shortLease(c)
	c.Lease, c.RenewEvery, c.HandlerTimeout = 1500*time.Millisecond, 600*time.Millisecond, 600*time.Millisecond
	c.SweepEvery, c.Concurrency, c.CrashLimit = 2*time.Second, 3, txKills
}

// booker works deliveries with a transactional handler.
func booker(ctx context.Context) error {
	reg := durable.NewRegistry()
	reg.RegisterTx("books", "shop.order.paid", book, durable.WithMaxAttempts(100), durable.WithBackoff(0))
	return work(ctx, reg, txLease, nil)
}

// books makes the application's tables.
func books(t *testing.T, db *database.DB) {
	t.Helper()
	rig.Exec(t, db, `CREATE TABLE balance (id BIGINT PRIMARY KEY, amount BIGINT NOT NULL)`)
	rig.Exec(t, db, `INSERT INTO balance VALUES (1, 0)`)
	rig.Exec(t, db, `CREATE TABLE booked (event_id TEXT NOT NULL)`) // without a key: a second time shows
}

// Two processes book payments and are killed fifty times, at any moment of their work or of their start. In the end the
// balance is the sum of all amounts, to the unit, and every event was booked once.
//
// contract: D-17, D-20, L-08
// scenario: B098
func TestTransactionalHandlerIsKilled(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to be repeated with the seed
		db, _ := dbtest.OpenPlace(t, s.place)
		books(t, db)
		reg := durable.NewRegistry()
		reg.RegisterTx("books", "shop.order.paid", book)
		engine := newEngine(t, db, reg)
		var sum int64
		published := 0
		publish := func() {
			var amounts int64
			err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
				amounts = 0
				for range txBatch {
					amount := random.Int64N(1_000_000) - 300_000
					amounts += amount
					if err := engine.PublishTx(ctx, tx, "shop.order.paid", events.Payload{"amount": amount}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			sum += amounts
			published += txBatch
		}

		began := time.Now()
		for range 3 {
			publish()
		}
		workers := []*process{startChild(t, "booker", s), startChild(t, "booker", s)}
		for kill := range txKills {
			publish()
			i := random.IntN(2)
			if random.IntN(5) > 0 {
				workers[i].up()
			}
			<-time.After(time.Duration(random.IntN(250)) * time.Millisecond)
			if kill == txKills-1 && count(t, db, `status = 'pending'`) == 0 {
				t.Error("nothing was left to do at the last kill")
			}
			workers[i].kill()
			workers[i] = startChild(t, "booker", s)
		}
		killed := time.Since(began)
		until(t, 120*time.Second, "all booked", func() bool {
			for _, w := range workers {
				w.running()
			}
			return count(t, db, `status = 'pending'`) == 0
		})
		for _, w := range workers {
			w.up()
			w.stop()
		}

		var balance int64
		var times, different, repeats int
		rig.Scan(t, db, `SELECT amount FROM balance`, nil, &balance)
		rig.Scan(t, db, `SELECT count(*), count(DISTINCT event_id) FROM booked`, nil, &times, &different)
		rig.Scan(t, db, `SELECT coalesce(sum(runs), 0) FROM event_deliveries`, nil, &repeats)
		repeats -= published
		if balance != sum || times != published || different != published {
			t.Errorf("the balance is %d, want %d; %d events were booked, %d times, want %d", balance, sum, different, times, published)
		}
		// A run may have been late, on a slow machine; else nothing fails.
		if n := count(t, db, `status <> 'delivered' OR unfinished <> 0 OR attempts <> 0 AND errors NOT LIKE '%time limit is over%'`); n != 0 {
			t.Errorf("%d deliveries are not delivered, or have spent attempts on a crash", n)
		}
		if repeats < 1 {
			t.Error("no kill cut a run short: the test shows nothing")
		}
		t.Logf("%d kills in %v, %d events, %d runs were cut short, %v in all", txKills, killed.Round(time.Millisecond), published, repeats,
			time.Since(began).Round(time.Millisecond))
	})
}

// committer books one payment and is killed when that is committed, before anything else is done about it.
func committer(ctx context.Context) error {
	reg := durable.NewRegistry()
	var db *database.DB
	reg.RegisterTx("books", "shop.order.paid", func(ctx context.Context, tx *sql.Tx, e events.Event) error {
		db.AfterCommit(ctx, func() {
			if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
				<-time.After(time.Minute) // never: the process is dead
			}
		})
		return book(ctx, tx, e)
	})
	return work(ctx, reg, func(c *loam.Config) {
		txLease(c)
		db = c.DB
	}, nil)
}

// A process is killed after the commit of a transactional handler, and before it has told its queue. The job comes again, in
// another process, and finds nothing to do.
//
// contract: D-17, L-05, J-02
// scenario: B098
func TestKilledAfterTheCommit(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		db, _ := dbtest.OpenPlace(t, s.place)
		books(t, db)
		reg := durable.NewRegistry()
		reg.RegisterTx("books", "shop.order.paid", func(context.Context, *sql.Tx, events.Event) error {
			t.Error("it runs again")
			return errors.New("no")
		})
		engine := newEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), "shop.order.paid", events.Payload{"amount": 12}); err != nil {
			t.Fatal(err)
		}
		child := startChild(t, "committer", s)
		if !child.wait() {
			t.Fatalf("the child has ended by itself: %v\n%s", child.err, child.stderr.String())
		}
		if n := count(t, db, `status = 'delivered' AND runs = 1`); n != 1 {
			t.Fatal("its commit is not there")
		}
		// Its job was left running: River gives it to another worker.
		rig.Exec(t, db, `UPDATE river_job SET state = 'available' WHERE kind = 'loam_event_delivery'`)
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		until(t, 60*time.Second, "the job done", func() bool {
			return rig.Dump(t, db, `SELECT count(*) FROM river_job WHERE kind = 'loam_event_delivery' AND state <> 'completed'`) == "0"
		})
		if got := rig.Dump(t, db, `SELECT amount, (SELECT count(*) FROM booked) FROM balance`); got != "12|1" {
			t.Errorf("the balance, and how often it was booked: %s", got)
		}
		if n := count(t, db, `status = 'delivered' AND runs = 1 AND attempts = 0 AND unfinished = 0`); n != 1 {
			t.Error("the row was changed")
		}
	})
}
