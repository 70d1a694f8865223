package database_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
)

// Those that go first do, then the others, each in the order in which they came.
func TestOrderAtTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := fakeDB(t, time.Hour)
		release := hold(t, db)
		var order []string // written inside transactions, one at a time
		var all sync.WaitGroup
		for _, name := range []string{"a", "B", "c", "D", "e", "F", "g"} {
			enter := db.InTx
			if name < "a" { // the capitals
				enter = db.InTxFirst
			}
			all.Go(func() {
				err := enter(t.Context(), func(context.Context, *sql.Tx) error {
					order = append(order, name)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // until it stands in its queue
		}
		release()
		all.Wait()
		if want := []string{"B", "D", "F", "a", "c", "e", "g"}; !slices.Equal(order, want) {
			t.Errorf("the order is %q, want %q", order, want)
		}
	})
}

// A call waits for the limit and no longer, and then says what is likely wrong. What is inside has no such limit.
func TestWaitingLimit(t *testing.T) {
	t.Parallel()
	for set, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			db := fakeDB(t, set)
			release := hold(t, db)
			for _, enter := range []func(context.Context, func(context.Context, *sql.Tx) error) error{db.InTx, db.InTxFirst} {
				start := time.Now()
				if err := enter(t.Context(), nothing); !errors.Is(err, database.ErrWait) {
					t.Errorf("got %v, want ErrWait", err)
				}
				if waited := time.Since(start); waited != want {
					t.Errorf("waited %v, want %v", waited, want)
				}
			}
			release() // twice the limit after its begin, and still fine
			if err := db.InTx(t.Context(), nothing); err != nil {
				t.Errorf("after those that gave up: %v", err)
			}
		})
	}
}

// A transaction begun on the pool itself is not seen by the gate; who then enters gets ErrWait, and later callers their turn.
func TestTransactionsBesideTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := fakeDB(t, 10*time.Second)
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := db.InTx(t.Context(), nothing); !errors.Is(err, database.ErrWait) || time.Since(start) != 10*time.Second {
			t.Errorf("got %v after %v, want ErrWait after 10s", err, time.Since(start))
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := db.InTx(t.Context(), nothing); err != nil {
			t.Error(err)
		}
	})
}

// A waiter whose context ends leaves at once with the cause; the others keep their places.
func TestWaitersThatLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := fakeDB(t, time.Hour)
		release := hold(t, db)
		errGone := errors.New("gone")
		leaving, leave := context.WithCancelCause(t.Context())
		limited, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var order []string
		errs := map[string]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, c := range []struct {
			name string
			ctx  context.Context
		}{{"a", t.Context()}, {"b", leaving}, {"c", t.Context()}, {"d", limited}, {"e", t.Context()}} {
			all.Go(func() {
				err := db.InTx(c.ctx, func(context.Context, *sql.Tx) error {
					order = append(order, c.name)
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				errs[c.name] = err
			})
			synctest.Wait()
		}
		start := time.Now()
		leave(errGone)
		synctest.Wait()
		mu.Lock()
		if err, left := errs["b"]; !left || !errors.Is(err, errGone) || time.Since(start) != 0 {
			t.Errorf("the cancelled one has %v, want its cause at once", err)
		}
		mu.Unlock()
		time.Sleep(2 * time.Second) // on the bubble's clock
		release()
		all.Wait()
		if !errors.Is(errs["d"], context.DeadlineExceeded) || errors.Is(errs["d"], database.ErrWait) {
			t.Errorf("the one with a deadline has %v", errs["d"])
		}
		if want := []string{"a", "c", "e"}; !slices.Equal(order, want) || errors.Join(errs["a"], errs["c"], errs["e"]) != nil {
			t.Errorf("the order is %q, want %q; errors %v", order, want, errs)
		}
	})
}

// A context that has ended already gets nothing, also when the gate is open, and does not close it.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	db := fakeDB(t, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := db.InTx(ctx, func(context.Context, *sql.Tx) error {
		t.Error("it ran")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := db.InTx(t.Context(), nothing); err != nil {
		t.Error(err)
	}
}

// A waiter that is cancelled in the moment in which its turn comes passes the turn on. The moment is a race, so it is
// tried until it was met; if the turn is lost, the next one waits for ever.
func TestATurnIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := fakeDB(t, time.Hour)
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			in, end := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				err := db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
					close(in)
					<-end
					cancel() // the waiter and the gate now race
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			<-in
			all.Go(func() { _ = db.InTx(ctx, nothing) })
			synctest.Wait()
			all.Go(func() {
				if err := db.InTx(t.Context(), nothing); err != nil {
					t.Errorf("the turn was lost: %v", err)
				}
			})
			synctest.Wait()
			close(end)
			all.Wait()
			if t.Failed() {
				return
			}
		}
	})
}

// One at a time, whoever comes, waits, leaves or fails, and in the end the gate is open.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	db := fakeDB(t, time.Minute)
	var inside, entered atomic.Int64
	one := func(context.Context, *sql.Tx) error {
		if inside.Add(1) != 1 {
			t.Error("two are inside")
		}
		entered.Add(1)
		inside.Add(-1)
		return nil
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				switch (i + j) % 4 {
				case 0:
					_ = db.InTxFirst(ctx, one)
				case 1:
					_ = db.InTx(ctx, func(context.Context, *sql.Tx) error { return errors.Join(one(ctx, nil), errors.New("failed")) })
				case 2:
					go cancel()
					_ = db.InTx(ctx, one)
				default:
					_ = db.InTx(ctx, one)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if n := entered.Load(); n < 1500 {
		t.Errorf("only %d of 2000 got in", n)
	}
	if err := db.InTx(t.Context(), one); err != nil {
		t.Error(err)
	}
}
