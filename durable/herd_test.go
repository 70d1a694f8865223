package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// lockShort is how long a transaction of the herd's may keep others from writing. The scenario says a second; a machine
// that does much else, or the race detector, needs more.
const lockShort = 10 * time.Second

// writeBeside writes on another handle all the while, as an application does, and returns a function that ends it and says
// how often it did and how long the longest took.
func writeBeside(t *testing.T, r *rig.Rig) (end func() (n int, longest time.Duration)) {
	t.Helper()
	db, _ := dbtest.Again(t, r.DB)
	rig.Exec(t, r.DB, `CREATE TABLE test_writes (n BIGINT)`)
	stop := make(chan struct{})
	var n int
	var longest time.Duration
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			began := time.Now()
			err := db.InTx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO test_writes VALUES (1)`)
				return err
			})
			if err != nil {
				t.Errorf("a writer beside the herd: %v", err)
				return
			}
			n, longest = n+1, max(longest, time.Since(began))
		}
	})
	end = sync.OnceValues(func() (int, time.Duration) {
		close(stop)
		all.Wait()
		return n, longest
	})
	t.Cleanup(func() { end() })
	return end
}

// contract: J-05, S-02, S-04. Two thousand rows fail in the same moment, lose their jobs and are due in the same second. Sweeps
// wake them by wake-ups of at most a hundred rows, each in a transaction of its own; no more handlers run at once than
// there are slots; no transaction claims more; and who writes beside that never waits for long.
// scenario: B071
func TestAHerdIsDueAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const herd, slots, workers = 2000, 20, 8
		r := rig.New(t, db)
		var now, peak, runs atomic.Int64
		var fail atomic.Bool
		p, faults := process(t, r, slotsOf(slots))
		p.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			n := now.Add(1)
			defer now.Add(-1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			runs.Add(1)
			<-time.After(time.Millisecond) // so that they meet
			if fail.Load() {
				return errors.New("the receiver is away")
			}
			return nil
		})
		fill(r, "acme", "herd", durable.Pending, herd)
		rig.Exec(t, db, `UPDATE event_deliveries SET subscriber_key = 'mailer', event_name = $1, attempts = 1, next_attempt_at = $2`,
			paid, database.At(r.Clock.Now().Add(time.Minute))) // all have failed now
		r.Clock.Add(time.Minute)

		var mu sync.Mutex
		woken, open := 0, 0 // wake-ups in the open transaction: the sweep has one at a time
		faults.Before(func(op dbtest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case op.Kind == "begin":
				open = 0
			case strings.Contains(op.SQL, "INSERT INTO test_wakeups"):
				woken++
				if open++; open > 1 {
					t.Errorf("%d wake-ups in one transaction", open)
				}
			}
			return nil
		})
		end := writeBeside(t, r)
		sweeps := 0
		for after := (durable.Cursor{}); ; sweeps++ {
			full, err := p.Sweeper.Tenant(t.Context(), "acme", after)
			if err != nil {
				t.Fatal(err)
			}
			if full == nil {
				break
			}
			after = full.After
		}
		faults.Before(nil)
		all := r.Wakeups.All()
		ids := map[string]bool{}
		for _, w := range all {
			if len(w.IDs) > durable.MaxWakeup {
				t.Errorf("a wake-up of %d rows", len(w.IDs))
			}
			for _, id := range w.IDs {
				ids[id] = true
			}
		}
		if len(ids) != herd || len(all) != herd/durable.MaxWakeup || woken != len(all) {
			t.Errorf("%d rows were woken by %d wake-ups in %d statements", len(ids), len(all), woken)
		}
		r.Wakeups.Clear()

		var mostClaimed int
		faults.After(func(op dbtest.Op) error { // claims that the database has, at any commit
			if op.Kind == "commit" {
				mu.Lock()
				defer mu.Unlock()
				var n int
				if err := r.DB.Read().QueryRowContext(context.Background(),
					`SELECT count(*) FROM processed_events WHERE status = 'in_progress'`).Scan(&n); err != nil {
					t.Error(err)
				}
				mostClaimed = max(mostClaimed, n)
			}
			return nil
		})
		jobs := make(chan durable.Wakeup)
		var pool sync.WaitGroup
		deliver := func() {
			for w := range jobs {
				p.Deliver(w)
			}
		}
		for range workers {
			pool.Go(deliver)
		}
		for _, w := range all {
			jobs <- w
		}
		for { // what was handed on
			w, ok := r.Wakeups.Next(r.Clock.Now())
			if ok {
				jobs <- w
			} else if runs.Load() == herd {
				break
			} else {
				<-time.After(5 * time.Millisecond)
			}
		}
		close(jobs)
		pool.Wait()
		faults.After(nil)
		writes, longest := end()
		if got := peak.Load(); got > slots {
			t.Errorf("%d handlers ran at once, with %d slots", got, slots)
		}
		if mostClaimed > slots || mostClaimed == 0 {
			t.Errorf("%d claims at once, with %d slots", mostClaimed, slots)
		}
		if longest > lockShort || writes == 0 {
			t.Errorf("of %d writes beside, one took %v", writes, longest)
		}
		if row := r.Rows("acme"); len(row) != herd || runs.Load() != herd {
			t.Errorf("%d runs of %d rows", runs.Load(), len(row))
		}
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered || row.Attempts != 1 {
				t.Fatalf("a row is %+v", row)
			}
		}
		t.Logf("%d full sweeps, at most %d handlers and %d claims at once; of %d writes beside the longest took %v",
			sweeps, peak.Load(), mostClaimed, writes, longest.Round(time.Millisecond))
	})
}
