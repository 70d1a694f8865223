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

const (
	herdSlots   = 20
	herdWorkers = 8
	// herdLock is how long others may be kept from writing. The scenario says a second; a machine that does much else, or the
	// race detector, needs more.
	herdLock = 10 * time.Second
)

// herd is a process with many rows that are due at once.
type herd struct {
	*rig.Rig // it looks and meddles
	p        *rig.Rig
	faults   *dbtest.Faults

	fail                atomic.Bool
	now, peak, runs     atomic.Int64
	mu                  sync.Mutex
	woken, open, claims int
}

func newHerd(t *testing.T, db *database.DB) *herd {
	t.Helper()
	h := &herd{Rig: rig.New(t, db)}
	h.p, h.faults = process(t, h.Rig, slotsOf(herdSlots))
	h.p.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
		n := h.now.Add(1)
		defer h.now.Add(-1)
		for old := h.peak.Load(); n > old && !h.peak.CompareAndSwap(old, n); old = h.peak.Load() {
		}
		h.runs.Add(1)
		<-time.After(time.Millisecond) // so that they meet
		if h.fail.Load() {
			return errors.New("the receiver is away")
		}
		return nil
	})
	fill(h.Rig, "acme", "herd", durable.Pending, herdRows)
	return h
}

// oneEach counts the wake-ups, and that no transaction has two: the sweep has one open at a time.
func (h *herd) oneEach(op dbtest.Op) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case op.Kind == "begin":
		h.open = 0
	case strings.Contains(op.SQL, "INSERT INTO test_wakeups"):
		h.woken++
		if h.open++; h.open > 1 {
			h.T.Errorf("%d wake-ups in one transaction", h.open)
		}
	}
	return nil
}

// claimed notes how many claims the database has, after each commit.
func (h *herd) claimed(op dbtest.Op) error {
	if op.Kind != "commit" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var n int
	err := h.DB.Read().QueryRowContext(context.Background(), `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`).Scan(&n)
	h.claims = max(h.claims, n)
	return err
}

// sweep wakes all, page by page, and returns the wake-ups.
func (h *herd) sweep(t *testing.T) []durable.Wakeup {
	t.Helper()
	h.Wakeups.Clear()
	h.woken = 0
	h.faults.Before(h.oneEach)
	defer h.faults.Before(nil)
	for after, more := (durable.Cursor{}), true; more; {
		full, err := h.p.Sweeper.Tenant(t.Context(), "acme", after)
		if err != nil {
			t.Fatal(err)
		}
		if more = full != nil; more {
			after = full.After
		}
	}
	all := h.Wakeups.All()
	ids := map[string]bool{}
	for _, w := range all {
		if len(w.IDs) > durable.MaxWakeup {
			t.Errorf("a wake-up of %d rows", len(w.IDs))
		}
		for _, id := range w.IDs {
			ids[id] = true
		}
	}
	if len(ids) != herdRows || len(all) != herdRows/durable.MaxWakeup || h.woken != len(all) {
		t.Errorf("%d rows were woken by %d wake-ups in %d statements", len(ids), len(all), h.woken)
	}
	return all
}

// work works wake-ups and what they hand on, until each row has had one more run.
func (h *herd) work(t *testing.T, all []durable.Wakeup) {
	t.Helper()
	h.Wakeups.Clear()
	h.runs.Store(0)
	h.faults.After(h.claimed)
	defer h.faults.After(nil)
	jobs := make(chan durable.Wakeup)
	var pool sync.WaitGroup
	for range herdWorkers {
		pool.Go(func() {
			for w := range jobs {
				h.p.Deliver(w)
			}
		})
	}
	for _, w := range all {
		jobs <- w
	}
	for deadline := time.Now().Add(5 * time.Minute); h.runs.Load() < herdRows && time.Now().Before(deadline); {
		if w, ok := h.Wakeups.Next(h.Clock.Now()); ok {
			jobs <- w
		} else {
			<-time.After(5 * time.Millisecond)
		}
	}
	close(jobs)
	pool.Wait()
	if n := h.runs.Load(); n != herdRows {
		t.Errorf("%d runs of %d rows", n, herdRows)
	}
}

// writeBeside writes on another handle all the while, as an application does, and returns a function that ends it and says
// how often it did and how long the longest took.
func (h *herd) writeBeside(t *testing.T) (end func() (n int, longest time.Duration)) {
	t.Helper()
	db, _ := dbtest.Again(t, h.DB)
	rig.Exec(t, h.DB, `CREATE TABLE test_writes (n BIGINT)`)
	stop := make(chan struct{})
	n, longest := 0, time.Duration(0)
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

// contract: D-09, J-05, S-02, S-04. Two thousand rows (600 under the race detector) fail in the same moment, lose their jobs and are due in the same second.
// Sweeps wake them by wake-ups of at most a hundred rows, each in a transaction of its own; no more handlers run, and no more
// rows are claimed, than there are slots; and who writes beside that never waits for long.
// scenario: B071
func TestAHerdIsDueAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		h := newHerd(t, db)
		end := h.writeBeside(t)
		h.fail.Store(true)
		h.work(t, h.sweep(t))
		for _, row := range h.Rows("acme") {
			if row.Status != durable.Pending || row.Attempts != 1 || row.NextAttemptAt != database.At(h.Clock.Now().Add(time.Minute)) {
				t.Fatalf("after the failure a row is %+v", row)
			}
		}
		h.fail.Store(false)
		h.Clock.Add(time.Minute)
		h.work(t, h.sweep(t))
		for _, row := range h.Rows("acme") {
			if row.Status != durable.Delivered || row.Attempts != 1 || row.Runs != 2 {
				t.Fatalf("in the end a row is %+v", row)
			}
		}
		writes, longest := end()
		if got := h.peak.Load(); got > herdSlots {
			t.Errorf("%d handlers ran at once, with %d slots", got, herdSlots)
		}
		if h.claims > herdSlots || h.claims == 0 {
			t.Errorf("%d claims at once, with %d slots", h.claims, herdSlots)
		}
		if longest > herdLock || writes == 0 {
			t.Errorf("of %d writes beside, the longest took %v", writes, longest)
		}
		t.Logf("at most %d handlers and %d claims at once; of %d writes beside the longest took %v",
			h.peak.Load(), h.claims, writes, longest.Round(time.Millisecond))
	})
}
