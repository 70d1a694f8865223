package loam_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// latency is how long an event took from its publish to its handler.
type latency struct {
	sent  map[string]time.Time
	began chan began
}

type began struct {
	id string
	at time.Time
}

func (l *latency) handle(_ context.Context, e events.Event) error {
	l.began <- began{e.ID, time.Now()}
	return nil
}

// wait receives as many as were sent, and returns the sorted times that they took.
func (l *latency) wait(t *testing.T, limit time.Duration) []time.Duration {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	var took []time.Duration
	for range l.sent {
		select {
		case b := <-l.began:
			took = append(took, b.at.Sub(l.sent[b.id]))
		case <-deadline.C:
			t.Fatalf("after %v: %d of %d events were handled", limit, len(took), len(l.sent))
		}
	}
	slices.Sort(took)
	clear(l.sent)
	return took
}

// listeners are the sessions of a database that listen for notices.
func listeners(t *testing.T, db *database.DB) string {
	t.Helper()
	return rig.Dump(t, db, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%' ORDER BY pid`)
}

// The connection on which a worker hears of new jobs is cut, alone. It is opened again, and events that another process publishes
// meanwhile and afterwards are run all the same.
//
// contract: J-04
// scenario: B075
func TestTheListeningConnectionIsCut(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, database.PostgreSQL))
	l := &latency{sent: map[string]time.Time{}, began: make(chan began, 100)}
	reg := durable.NewRegistry()
	reg.RegisterFunc("mailer", "shop.", l.handle)
	startEngine(t, db, reg)
	other, _ := dbtest.Again(t, db)
	publisher := newEngine(t, other, durable.NewRegistry()) // it does not work, so that nothing but a notice tells the worker
	next := 0
	twenty := func(when string) {
		t.Helper()
		for range 20 {
			id := killEvent(next)
			next++
			l.sent[id] = time.Now()
			if err := publisher.Publish(inTenant(t), paid, nil, events.WithID(id)); err != nil {
				t.Fatal(err)
			}
		}
		took := l.wait(t, 30*time.Second)
		t.Logf("%s: 20 events began after %v in the median, %v at most", when, took[10].Round(time.Millisecond), took[19].Round(time.Millisecond))
	}
	until(t, 30*time.Second, "listening", func() bool { return listeners(t, db) != "" })
	twenty("while it listens")
	before := listeners(t, db)
	cut := time.Now()
	rig.Exec(t, other, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'
		AND pid <> pg_backend_pid()`)
	twenty("right after the cut")
	until(t, 30*time.Second-time.Since(cut), "listening again", func() bool {
		now := listeners(t, db)
		return now != "" && now != before
	})
	t.Logf("it listens again %v after the cut", time.Since(cut).Round(time.Millisecond))
	twenty("when it listens again")
}

// Somebody's transaction stays open while 300 events flow. They are claimed and delivered all the while, and no handler runs
// inside a transaction of ours: none that was open when a handler began outlasts the wait for it in the handler.
//
// contract: J-04, L-01
// scenario: B205
func TestATransactionElsewhereStaysOpen(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, database.PostgreSQL))
	elsewhere, _ := dbtest.Again(t, db)
	tx, err := elsewhere.Write().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var idle int
	// It has an id and a snapshot: no row that dies from now on can be cleaned up.
	if err := tx.QueryRowContext(t.Context(), `SELECT pg_backend_pid() FROM (SELECT pg_current_xact_id()) AS x`).Scan(&idle); err != nil {
		t.Fatal(err)
	}
	l := &latency{sent: map[string]time.Time{}, began: make(chan began, 1000)}
	var looked atomic.Int64
	reg := durable.NewRegistry()
	reg.RegisterFunc("mailer", "shop.", func(ctx context.Context, e events.Event) error {
		if err := l.handle(ctx, e); err != nil || looked.Add(1)%20 != 1 {
			return err
		}
		var start time.Time
		if err := db.Read().QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&start); err != nil {
			return err
		}
		for deadline := time.Now().Add(20 * time.Second); ; {
			var n, mine int
			if err := db.Read().QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE pid = $2) FROM pg_stat_activity
				WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND xact_start < $1`, start, idle).Scan(&n, &mine); err != nil {
				return err
			}
			if n == 1 && mine == 1 {
				return nil
			}
			if time.Now().After(deadline) {
				t.Errorf("%d transactions stay open while a handler runs, %d of them elsewhere", n, mine)
				return nil
			}
			<-time.After(10 * time.Millisecond)
		}
	})
	engine := startEngine(t, db, reg)
	const total = 300
	for n := range total { // 50 a second
		id := killEvent(n)
		l.sent[id] = time.Now()
		if err := engine.Publish(inTenant(t), paid, nil, events.WithID(id)); err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
	took := l.wait(t, time.Minute)
	t.Logf("%d events began after %v in the median, %v in 99 of 100, %v at most", total,
		took[total/2].Round(time.Millisecond), took[total*99/100].Round(time.Millisecond), took[total-1].Round(time.Millisecond))
	if p99 := took[total*99/100]; p99 > 10*time.Second {
		t.Errorf("one of a hundred waited for %v", p99)
	}
	until(t, time.Minute, "delivered", func() bool { return count(t, db, `status = 'delivered' AND runs = 1 AND attempts = 0`) == total })
	if n := looked.Load(); n != total {
		t.Errorf("%d runs of %d events", n, total)
	}
}
