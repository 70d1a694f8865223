package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// panics runs f and returns the text of its panic.
func panics(t *testing.T, what string, f func()) (text string) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		} else {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
	return ""
}

// shop makes an engine with one subscriber and a table of the application's.
func shop(t *testing.T, db *database.DB) *loam.Engine {
	t.Helper()
	rig.Exec(t, db, `CREATE TABLE orders (id INTEGER)`)
	reg := durable.NewRegistry()
	reg.RegisterFunc("mailer", "shop.", succeed)
	return newEngine(t, db, reg)
}

// order writes the application's data.
func order(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (7)`)
	return err
}

// orders fails the test unless so many of the application's rows are there, and as many deliveries and jobs.
func orders(t *testing.T, db *database.DB, when string, want int) {
	t.Helper()
	var n int
	rig.Scan(t, db, `SELECT count(*) FROM orders`, nil, &n)
	if n != want {
		t.Errorf("%s: %d orders, want %d", when, n, want)
	}
	stored(t, db, when, want, want)
}

// contract: D-06. The data and its deliveries are there together or not at all, in a transaction of the engine's or of the
// caller's own, however it ends; and others see neither before the commit.
func TestDataAndDeliveriesTogether(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		both := func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(order(ctx, tx), engine.PublishTx(ctx, tx, paid, nil))
		}
		errOurs := errors.New("ours")
		if err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(both(ctx, tx), errOurs)
		}); !errors.Is(err, errOurs) {
			t.Errorf("got %v", err)
		}
		orders(t, db, "after an error", 0)
		panics(t, "a panic inside", func() {
			_ = engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error { panic(both(ctx, tx)) })
		})
		orders(t, db, "after a panic", 0)
		if err := engine.InTx(inTenant(t), both); err != nil {
			t.Error(err)
		}
		orders(t, db, "after the commit", 1)

		for _, end := range []struct {
			name string
			end  func(*sql.Tx) error
			want int
		}{{"rollback", (*sql.Tx).Rollback, 1}, {"commit", (*sql.Tx).Commit, 2}} {
			tx, err := db.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := both(inTenant(t), tx); err != nil {
				t.Error(err)
			}
			orders(t, db, "before the "+end.name+" of the caller's own", 1)
			if err := end.end(tx); err != nil {
				t.Error(err)
			}
			orders(t, db, "after the "+end.name+" of the caller's own", end.want)
		}
	})
}

// contract: D-06. An inner transaction that has ended says nothing of the outer one: the event goes with the outer.
// scenario: B001
func TestReleasedSavepoint(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		errBack := errors.New("back")
		for i, end := range []error{errBack, nil} {
			err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
				_, inner := tx.ExecContext(ctx, `SAVEPOINT inner_one; INSERT INTO orders (id) VALUES (7); RELEASE inner_one`)
				return errors.Join(inner, engine.PublishTx(ctx, tx, paid, events.Payload{"id": 1}), seesNothing(ctx, db), end)
			})
			if !errors.Is(err, end) {
				t.Errorf("got %v, want %v", err, end)
			}
			orders(t, db, fmt.Sprintf("the outer one ended with %v", end), i)
		}
	})
}

// seesNothing looks at the tables as another connection does.
func seesNothing(ctx context.Context, db *database.DB) error {
	var n int
	err := db.Read().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM event_deliveries) + (SELECT count(*) FROM river_job)`).Scan(&n)
	if err == nil && n != 0 {
		err = fmt.Errorf("another connection sees %d rows and jobs", n)
	}
	return err
}

// contract: D-06. An event published below a savepoint that is rolled back does not exist, though the handler around it
// swallows the error and succeeds; what it published beside it does.
// scenario: B003
func TestRolledBackSavepointInAHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var engine *loam.Engine
		reg := durable.NewRegistry()
		created := make(chan string, 10)
		reg.RegisterFunc("a", paid, func(ctx context.Context, _ events.Event) error {
			return engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `SAVEPOINT attempt`)
				failed := engine.PublishTx(ctx, tx, "x.created.lost", nil)
				_, back := tx.ExecContext(ctx, `ROLLBACK TO attempt; RELEASE attempt`)
				return errors.Join(err, failed, back, engine.PublishTx(ctx, tx, "x.created.kept", nil))
			})
		})
		reg.RegisterFunc("b", "x.", func(_ context.Context, e events.Event) error {
			created <- e.Name
			return nil
		})
		engine = startEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), paid, nil); err != nil {
			t.Fatal(err)
		}
		until(t, 30*time.Second, "both delivered", func() bool { return count(t, db, "status = 'delivered'") == 2 })
		if n, lost := count(t, db, "true"), count(t, db, "event_name = 'x.created.lost'"); n != 2 || lost != 0 {
			t.Errorf("%d rows, %d of the event that was rolled back", n, lost)
		}
		if name := <-created; name != "x.created.kept" || len(created) != 0 {
			t.Errorf("delivered %s and %d more", name, len(created))
		}
		for _, j := range wakeJobs(t, db) {
			for _, id := range j.ids() {
				if count(t, db, "id = $1", id) != 1 {
					t.Errorf("a job wakes %s, which does not exist", id)
				}
			}
		}
	})
}

// contract: E-16. On the context of a transaction everything that would open a second one is refused at once: the connection
// that it would wait for is its caller's. After the transaction all of it works.
func TestInsideATransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		calls := func(ctx context.Context) map[string]error {
			return map[string]error{
				"Publish":          engine.Publish(ctx, paid, nil),
				"Publish, no sub":  engine.Publish(ctx, "nobody.wants.this", nil),
				"Publish, bad":     engine.Publish(ctx, "bad", nil),
				"InTx":             engine.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }),
				"AddTenant":        engine.AddTenant(ctx, "globex"),
				"Migrate":          engine.Migrate(ctx),
				"Redeliver":        engine.Redeliver(ctx, "x"),
				"derived contexts": engine.Publish(context.WithoutCancel(ctx), paid, nil),
			}
		}
		err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			for what, err := range calls(ctx) {
				if !errors.Is(err, events.ErrInTransaction) {
					t.Errorf("%s: got %v, want ErrInTransaction", what, err)
				} else if !strings.Contains(err.Error(), "PublishTx") {
					t.Errorf("%s: the message does not say what to do: %v", what, err)
				}
			}
			return errors.Join(order(ctx, tx), engine.PublishTx(ctx, tx, paid, nil))
		})
		if err != nil {
			t.Error(err)
		}
		orders(t, db, "after the transaction", 1)
		for what, err := range calls(inTenant(t)) {
			if errors.Is(err, events.ErrInTransaction) {
				t.Errorf("%s, outside: %v", what, err)
			}
		}
	})
}

// contract: E-16, D-06. In a transaction that the caller began without InTx, an inline subscriber is inside it all the same.
func TestInsideATransactionOfTheCallers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		engine.Subscribe(paid, func(ctx context.Context, e events.Event) error {
			if err := engine.Publish(ctx, "shop.receipt.made", nil); !errors.Is(err, events.ErrInTransaction) {
				t.Errorf("Publish: got %v, want ErrInTransaction", err)
			}
			return order(ctx, e.Tx())
		})
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.PublishTx(inTenant(t), tx, paid, nil); err != nil {
			t.Error(err)
		}
		orders(t, db, "before the commit", 0)
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		orders(t, db, "after the commit", 1)
	})
}

// contract: E-08, D-06. What PublishTx refuses leaves the caller's transaction as it was: it can go on and commit.
// scenario: B154
func TestARefusalLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		id := events.WithID(eventID)
		err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			if err := errors.Join(order(ctx, tx), engine.PublishTx(ctx, tx, paid, nil, id)); err != nil {
				return err
			}
			for want, err := range map[error]error{
				events.ErrInvalidPayload: engine.PublishTx(ctx, tx, paid, events.Payload{"x": strings.Repeat("x", 5<<20)}),
				events.ErrInvalidName:    engine.PublishTx(ctx, tx, "shop.order."+strings.Repeat("x", 1000), nil),
				events.ErrIDReused:       engine.PublishTx(ctx, tx, paid, events.Payload{"x": 1}, id),
				events.ErrInvalidID:      engine.PublishTx(ctx, tx, paid, nil, events.WithID("42")),
			} {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		orders(t, db, "after the refusals", 1)
	})
}

// contract: D-06. Without a transaction PublishTx says so.
func TestPublishTxWithoutATransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := shop(t, db)
		if err := engine.PublishTx(inTenant(t), nil, paid, nil); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("got %v", err)
		}
		orders(t, db, "afterwards", 0)
	})
}
