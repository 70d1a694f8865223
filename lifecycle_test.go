package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
)

// An engine lives once. What is out of order is an error, or nothing; it never breaks what runs. Start seals the registry;
// Publish works before Start and after Stop.
//
// contract: D-03
func TestEngineLivesOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		handle := func(context.Context, events.Event) error { return nil }
		reg.RegisterFunc("mail", "shop.", handle)
		publish := func(e *loam.Engine) {
			t.Helper()
			if err := e.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
				t.Fatal(err)
			}
		}
		never := newEngine(t, db, reg)
		stopEngine(t, never)
		if err := never.Start(t.Context()); err == nil {
			t.Error("Start after Stop succeeded")
		}

		engine := newEngine(t, db, reg)
		publish(engine)
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(t.Context()); err == nil {
			t.Error("the second Start succeeded")
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a registration after Start did not panic")
				}
			}()
			reg.RegisterFunc("late", "shop.", handle)
		}()
		publish(engine)
		until(t, 60*time.Second, "delivered", func() bool { return count(t, db, `status = 'delivered'`) == 2 })
		stopEngine(t, engine)
		stopEngine(t, engine)
		if err := engine.Start(t.Context()); err == nil {
			t.Error("Start after Stop succeeded")
		}
		publish(engine)
		if n := count(t, db, `status = 'pending'`); n != 1 {
			t.Errorf("%d rows are pending after a publish to a stopped engine", n)
		}
	})
}

// Starts, stops and publishes meet in every order. Of two Starts one wins, nothing that was published is lost, and no
// goroutine is left (TestMain looks).
//
// contract: D-14
func TestStartStopStress(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error { return nil })
		var published atomic.Int64
		for range 5 {
			engine := newEngine(t, db, reg)
			var starts atomic.Int64
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					if engine.Start(t.Context()) == nil {
						starts.Add(1)
					}
				})
				all.Go(func() {
					for range 2 {
						if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
							t.Error(err)
						}
						published.Add(1)
					}
				})
			}
			all.Wait()
			if n := starts.Load(); n != 1 {
				t.Fatalf("%d of two Starts succeeded", n)
			}
			for range 2 {
				all.Go(func() { stopEngine(t, engine) })
			}
			all.Go(func() {
				if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
					t.Error(err)
				}
				published.Add(1)
			})
			all.Wait()
		}
		startEngine(t, db, reg)
		until(t, 60*time.Second, "all delivered", func() bool {
			return count(t, db, `status = 'delivered' AND attempts = 0`) == int(published.Load())
		})
	})
}

// The end of Start's context is not the end of the engine: handlers that run then are not cancelled, and what they did is
// written. After a restart nothing runs again.
//
// contract: D-14, D-08
// scenario: B052
func TestStartsContextMayEnd(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 20
		started, release := make(chan struct{}, 2*n), make(chan struct{})
		registry := func() *durable.Registry {
			reg := durable.NewRegistry()
			for i := range n {
				reg.RegisterFunc("s."+string(rune('a'+i)), "shop.", func(ctx context.Context, _ events.Event) error {
					started <- struct{}{}
					<-release
					return ctx.Err()
				})
			}
			reg.RegisterFunc("last", "late.", func(context.Context, events.Event) error { return nil })
			return reg
		}
		engine := newEngine(t, db, registry())
		ctx, cancel := context.WithCancel(t.Context())
		if err := engine.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		receive(t, started, n, "handlers started")
		cancel()
		time.AfterFunc(150*time.Millisecond, func() { close(release) })
		stopEngine(t, engine)
		if got := count(t, db, `status = 'delivered' AND attempts = 0 AND runs = 1`); got != n {
			t.Fatalf("%d of %d rows are delivered after Stop", got, n)
		}
		again := startEngine(t, db, registry())
		if err := again.Publish(inTenant(t), "late.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		until(t, 60*time.Second, "working", func() bool { return count(t, db, `subscriber_key = 'last' AND status = 'delivered'`) == 1 })
		stopEngine(t, again)
		if len(started) != 0 {
			t.Errorf("%d handlers ran again after the restart", len(started))
		}
	})
}

// When the context of a transaction ends in the middle, everything is rolled back, and the error says that it was the
// context: also when database/sql was faster with its rollback than the function with its return.
//
// contract: D-06
func TestContextEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error { return nil })
		engine := newEngine(t, db, reg)
		ctx, cancel := context.WithCancel(inTenant(t))
		defer cancel()
		err := engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := engine.PublishTx(ctx, tx, "shop.order.paid", nil); err != nil {
				return err
			}
			cancel()
			until(t, 60*time.Second, "rolled back", func() bool {
				_, err := tx.ExecContext(context.WithoutCancel(ctx), `SELECT 1`)
				return errors.Is(err, sql.ErrTxDone)
			})
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("InTx returned %v", err)
		}
		if n := count(t, db, `true`); n != 0 {
			t.Errorf("%d rows are there", n)
		}
	})
}
