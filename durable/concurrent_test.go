package durable_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// onPostgres is a rig on PostgreSQL, for what happens only where transactions that write go on side by side.
func onPostgres(t *testing.T) (*rig.Rig, *dbtest.Faults) {
	t.Helper()
	db, faults := dbtest.OpenPlace(t, dbtest.Fresh(t, database.PostgreSQL))
	return rig.New(t, db), faults
}

// lockWait waits until n sessions of the database wait for a lock.
func lockWait(t *testing.T, db *database.DB, n int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for waiting := 0; waiting < n; {
		if err := db.Read().QueryRowContext(context.Background(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Error(err)
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d sessions wait for a lock, want %d", waiting, n)
			return
		}
	}
}

// once calls f before, or after, the first statement that contains part.
func once(part string, f func()) func(dbtest.Op) error {
	var first sync.Once
	return func(op dbtest.Op) error {
		if strings.Contains(op.SQL, part) {
			first.Do(f)
		}
		return nil
	}
}

// contract: L-01, L-02, J-03. Two processes claim the same rows in the same moment, in transactions that have both begun and seen no
// claim: one waits for the other, and each row runs once.
func TestTwoProcessesClaimAtOnce(t *testing.T) {
	t.Parallel()
	r, faults := onPostgres(t)
	var mu sync.Mutex
	calls := map[string]int{}
	r.Registry.RegisterFunc("mailer", paid, func(_ context.Context, e events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		calls[e.ID]++
		return nil
	})
	other, otherFaults := process(t, r, knows(r))
	met := 0
	for range 50 {
		rig.Exec(t, r.DB, `DELETE FROM event_deliveries`)
		ids := publishMany(r, 3, paid, "mailer")
		clear(calls)
		var both sync.WaitGroup
		both.Add(2)
		meet := func() { both.Done(); both.Wait(); met++ }
		faults.Before(once("INSERT INTO processed_events", meet))
		otherFaults.Before(once("INSERT INTO processed_events", func() { both.Done(); both.Wait() }))
		backwards := slices.Clone(ids)
		slices.Reverse(backwards)
		done := []<-chan error{background(r, ids...), background(other, backwards...)}
		for _, d := range done {
			ended(t, d, "both")
		}
		for _, row := range r.Rows("acme") {
			if calls[row.EventID] != 1 || row.Status != durable.Delivered || row.Runs != 1 || row.Unfinished != 0 {
				t.Fatalf("%d calls, %s, %d runs, %d unfinished", calls[row.EventID], row.Status, row.Runs, row.Unfinished)
			}
		}
	}
	if n := claims(t, r); n != 0 || met != 50 {
		t.Errorf("%d claims are left; they met %d times", n, met)
	}
}

// contract: T-05, L-08. A tenant is removed, and its rows are parked while a claim of one is being committed: the park waits, takes the
// claim, and the outcome of the run is refused.
func TestAParkBehindAClaim(t *testing.T) {
	t.Parallel()
	r, _ := onPostgres(t)
	parked := make(chan error, 1)
	finish := make(chan struct{})
	r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { <-finish; return nil })
	p, faults := process(t, r, knows(r))
	ids := publishMany(r, 1, paid, "mailer")
	faults.After(once("INSERT INTO processed_events", func() {
		rig.Exec(t, r.DB, `DELETE FROM loam_tenants WHERE id = 'acme'`)
		go func() {
			n, err := r.Deliveries.ParkRemoved(r.Ctx("acme"))
			if n != 1 {
				t.Errorf("%d rows were parked", n)
			}
			parked <- err
		}()
		lockWait(t, r.DB, 1)
	}))
	done := background(p, ids...)
	ended(t, parked, "the park")
	close(finish)
	ended(t, done, "the run")
	row := r.Row("acme", "mailer")
	if row.Status != durable.Dead || row.LastError != durable.RemovedReason || claims(t, r) != 0 || p.Count("loam.claims.lost") != 1 {
		t.Errorf("%s: %s, %d claims, %d lost", row.Status, row.LastError, claims(t, r), p.Count("loam.claims.lost"))
	}
}

// contract: T-05, L-08. The other way round: a claim that begins while the rows are being parked waits, finds them final, and leaves
// no claim behind.
func TestAClaimBehindAPark(t *testing.T) {
	t.Parallel()
	r, faults := onPostgres(t)
	r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
		t.Error("the handler ran")
		return nil
	})
	p, claiming := process(t, r, knows(r))
	ids := publishMany(r, 1, paid, "mailer")
	claiming.Before(once("INSERT INTO processed_events", func() { rig.Exec(t, r.DB, `DELETE FROM loam_tenants WHERE id = 'acme'`) }))
	done := make(chan (<-chan error), 1)
	faults.Before(once("UPDATE event_deliveries AS d SET status = 'dead'", func() { // the ledger's row is seized
		done <- background(p, ids...)
		lockWait(t, r.DB, 1)
	}))
	if n, err := r.Deliveries.ParkRemoved(r.Ctx("acme")); n != 1 || err != nil {
		t.Errorf("%d rows were parked, %v", n, err)
	}
	ended(t, <-done, "the claim")
	if row := r.Row("acme", "mailer"); row.Status != durable.Dead || row.Runs != 0 || claims(t, r) != 0 {
		t.Errorf("%s, %d runs, %d claims", row.Status, row.Runs, claims(t, r))
	}
}

// contract: A-03. Two operators redeliver one row in the same moment, in transactions that have both seen it dead: one wins, the
// other is told that it is not dead.
func TestTwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	r, faults := onPostgres(t)
	r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return errors.New("no") }, durable.WithMaxAttempts(1))
	r.Publish("acme", paid, nil)
	r.Work()
	id := r.Row("acme", "mailer").ID
	p, _ := process(t, r, knows(r))
	second := make(chan error, 1)
	faults.After(once("UPDATE event_deliveries SET status = 'pending'", func() {
		go func() { second <- p.Deliveries.Redeliver(p.Ctx("acme"), id) }()
		lockWait(t, r.DB, 1)
	}))
	if err := r.Deliveries.Redeliver(r.Ctx("acme"), id); err != nil {
		t.Error(err)
	}
	if err := within(t, second, "the second"); !errors.Is(err, durable.ErrNotDead) {
		t.Errorf("the second operator is told %v", err)
	}
	if row := r.Row("acme", "mailer"); row.Status != durable.Pending || row.Attempts != 0 || len(r.Wakeups.All()) != 1 {
		t.Errorf("%s, %d attempts, wake-ups %v", row.Status, row.Attempts, r.Wakeups.All())
	}
}
