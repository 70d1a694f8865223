package sweep_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/sweep"
)

// manyOld adds n delivered rows of acme with their marks, all of one time.
func manyOld(t *testing.T, db *database.DB, at time.Time, n int) {
	t.Helper()
	rig.Exec(t, db, `INSERT INTO event_deliveries
		(id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at, delivered_at)
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < $1)
		SELECT 'old' || n, 'acme', 'e' || n, 'mailer', 'billing.invoice.paid', 'loam', '{}', 'delivered', $2, $2, $2 FROM i`,
		n, database.At(at))
	rig.Exec(t, db, `INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, 'done', $1, $1, 'x', $1 FROM event_deliveries`, at.UnixMilli())
}

// contract: S-06. A transaction deletes 500 rows at most, and Prune ends after two seconds, though there is more: it says so.
// scenario: B200
func TestPruneInBatches(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		clock := rig.NewClock()
		manyOld(t, db, clock.Now().Add(-2*day), 1200)
		s := pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Delivered: day})
		count := func() (n int) {
			rig.Scan(t, db, `SELECT count(*) FROM event_deliveries`, nil, &n)
			return n
		}
		for i, c := range []struct {
			each time.Duration // that a commit takes
			full bool
			left int
		}{{1100 * time.Millisecond, true, 700}, {0, false, 0}, {0, false, 0}} {
			commits := 0
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == "commit" {
					commits++
					time.Sleep(c.each)
				}
				return nil
			})
			before := count()
			full, err := s.Prune(t.Context())
			faults.Before(nil)
			if err != nil || full != c.full || count() != c.left {
				t.Errorf("call %d: full %v, %v, %d rows are left", i, full, err, count())
			}
			if want := (before-c.left)/500 + 1; !c.full && commits != want {
				t.Errorf("call %d: %d transactions for %d rows", i, commits, before-c.left)
			}
		}
	})
}

// contract: S-06. Dead rows of many tenants, some with more than a batch, go tenant by tenant; young ones between them stay.
func TestPruneDeadOfManyTenants(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		clock := rig.NewClock()
		for name, old := range map[string]int{"a": 1100, "b": 0, "c": 3, "d": 500, "e": 0, "ü": 1} {
			manyOld(t, db, clock.Now().Add(-40*day), old+2)
			rig.Exec(t, db, `UPDATE event_deliveries SET status = 'dead', tenant_id = $1, id = $1 || id WHERE status = 'delivered'`, name)
			rig.Exec(t, db, `UPDATE event_deliveries SET updated_at = $1 WHERE tenant_id = $2 AND event_id IN ('e1', 'e2')`,
				database.At(clock.Now().Add(-day)), name)
			rig.Exec(t, db, `DELETE FROM processed_events`)
		}
		pruneAll(t, pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Dead: 30 * day}))
		if got := rig.Dump(t, db, `SELECT tenant_id, count(*), min(event_id), max(event_id) FROM event_deliveries GROUP BY 1 ORDER BY 1`); got !=
			"a|2|e1|e2\nb|2|e1|e2\nc|2|e1|e2\nd|2|e1|e2\ne|2|e1|e2\nü|2|e1|e2" {
			t.Errorf("left:\n%s", got)
		}
	})
}

// contract: S-06. Two processes that prune at once share the work: neither fails.
func TestTwoPrune(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		clock := rig.NewClock()
		manyOld(t, db, clock.Now().Add(-40*day), prunedByTwo)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'dead' WHERE id LIKE '%7'`)
		other, _ := dbtest.Again(t, db)
		var both sync.WaitGroup
		for _, db := range []*database.DB{db, other} {
			s := pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Delivered: day, Processed: day, Outbox: day, Dead: day})
			both.Go(func() {
				for full := true; full; {
					var err error
					if full, err = s.Prune(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		both.Wait()
		if got := left(t, db); got != "" {
			t.Errorf("left:\n%s", got)
		}
	})
}

// contract: S-06. On PostgreSQL a row that another transaction has locked is left out, and nobody waits; when that has made it pending,
// it stays.
func TestPruneLeavesOutWhatIsLocked(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, database.PostgreSQL))
	clock := rig.NewClock()
	manyOld(t, db, clock.Now().Add(-40*day), 20)
	tx, err := db.Own().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range []string{
		`UPDATE event_deliveries SET status = 'pending' WHERE id = 'old7'`, `UPDATE processed_events SET status = 'in_progress' WHERE event_id = 'e7'`,
		`UPDATE event_deliveries SET queue = 'slow' WHERE id = 'old8'`,
	} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s := pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Delivered: day, Processed: day})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Prune(ctx); err != nil || left(t, db) != "delivery old7\ndelivery old8\nledger e7" {
		t.Fatalf("beside the transaction: %v, left:\n%s", err, left(t, db))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if pruneAll(t, s); left(t, db) != "delivery old7\nledger e7" {
		t.Errorf("left after it:\n%s", left(t, db))
	}
}

// Events are published fifty times a second while old rows are pruned: 20,000 of each table, a million with LOAM_NIGHTLY set. No
// publish waits for a second.
//
// contract: S-06
// scenario: B200
func TestPublishWhilePruning(t *testing.T) {
	t.Parallel()
	n := prunedBeside
	if os.Getenv("LOAM_NIGHTLY") != "" {
		n = 1_000_000
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		manyOld(t, db, r.Clock.Now().Add(-40*day), n)
		done, ended := make(chan struct{}), make(chan []time.Duration)
		go func() {
			var waits []time.Duration
			defer func() { ended <- waits }()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-done:
					return
				}
				begun := time.Now()
				ctx := r.Ctx("acme")
				e, err := events.New(ctx, paid, events.Payload{"invoice_id": len(waits)}, rig.Limits)
				if err == nil {
					err = r.Deliveries.Capture(ctx, e)
				}
				if err != nil {
					t.Error(err)
					return
				}
				waits = append(waits, time.Since(begun))
			}
		}()
		begun := time.Now()
		calls := pruneAll(t, pruner(db, r.Clock.Now, r.Logs, sweep.Keep{Delivered: 30 * day, Processed: 30 * day}))
		took := time.Since(begun)
		close(done)
		waits := <-ended
		var longest time.Duration
		for _, w := range waits {
			longest = max(longest, w)
		}
		t.Logf("%d rows in %v and %d calls; %d events were published meanwhile, the slowest in %v", 2*n, took.Round(time.Millisecond), calls, len(waits),
			longest.Round(time.Millisecond))
		if len(waits) == 0 || longest > publishLimit {
			t.Errorf("%d publishes, the slowest took %v", len(waits), longest)
		}
		if got := left(t, db); strings.Contains(got, "old") || strings.Contains(got, "ledger") || strings.Count(got, "delivery") != len(waits) {
			t.Errorf("after %d publishes %d lines are left", len(waits), strings.Count(got, "\n")+1)
		}
	})
}
