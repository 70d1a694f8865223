package loam_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// claimByAnother publishes an event and gives its row a claim of another process that is a minute old and was just renewed.
// It returns the event's id, and when the claim may be taken over by a process with the margin of shortLease.
func claimByAnother(t *testing.T, db *database.DB, engine *loam.Engine) (id string, until time.Time) {
	t.Helper()
	id = killEvent(1)
	if err := engine.Publish(inTenant(t), "order.item.placed", nil, events.WithID(id)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	rig.Exec(t, db, `UPDATE event_deliveries SET created_at = $1`, database.At(now.Add(-time.Hour)))
	rig.Exec(t, db, `INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, 'in_progress', CAST($1 AS bigint), CAST($2 AS bigint), 'another', NULL
		FROM event_deliveries`, now.Add(-time.Minute).UnixMilli(), now.Add(time.Minute).UnixMilli())
	return id, now.Add(time.Minute + 200*time.Millisecond)
}

// wrongClock is a process whose clock can be off, over a database with a claim of another and an event that waits.
type wrongClock struct {
	db    *database.DB
	logs  *rig.Logs
	off   atomic.Int64
	runs  atomic.Int64
	ran   sync.Map  // event => when it ran first
	claim string    // the event that the other has claimed
	over  time.Time // when that claim may be taken over
}

func startWithWrongClock(t *testing.T, kind database.Dialect, offset time.Duration) *wrongClock {
	t.Helper()
	p := &wrongClock{logs: &rig.Logs{}}
	p.db, _ = dbtest.OpenPlace(t, dbtest.Fresh(t, kind))
	reg := durable.NewRegistry()
	reg.RegisterFunc("s2", "order.item.", func(_ context.Context, e events.Event) error {
		p.ran.LoadOrStore(e.ID, time.Now())
		p.runs.Add(1)
		return nil
	})
	p.claim, p.over = claimByAnother(t, p.db, newEngine(t, p.db, reg))
	p.off.Store(int64(offset))
	engine := startEngine(t, p.db, reg, shortLease, sweepEvery(time.Second), func(c *loam.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(p.off.Load())) }
		c.Logger = slog.New(p.logs)
	})
	if err := engine.Publish(inTenant(t), "order.item.placed", nil, events.WithID(killEvent(2))); err != nil {
		t.Fatal(err)
	}
	return p
}

// A process whose clock is 20 minutes off leaves the claim of another alone, and the events that wait. Once its clock is right it
// runs those at its next comparison, and the claim's when the lease is over: it does not wait for its old clock's time.
//
// contract: D-23, L-02, L-08
// scenario: B165
func TestClockOffLeavesClaimsAlone(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		// Both at once: a comparison comes in a minute.
		both := map[string]*wrongClock{
			"ahead":  startWithWrongClock(t, db.Dialect(), 20*time.Minute),
			"behind": startWithWrongClock(t, db.Dialect(), -20*time.Minute),
		}
		for name, p := range both {
			// It has had the time to look at claims, every 200 ms, and for what is due.
			until(t, time.Minute, "swept", func() bool { return sweeps(t, p.db) >= 4 })
			var claims int
			rig.Scan(t, p.db, `SELECT count(*) FROM processed_events WHERE owner = 'another' AND status = 'in_progress' AND lease_until > $1`,
				[]any{time.Now().UnixMilli()}, &claims)
			if n := count(t, p.db, `status = 'pending' AND runs = 0`); n != 2 || p.runs.Load() != 0 || claims != 1 {
				t.Errorf("%s: with the clock off %d rows wait, %d runs, %d claims of the other", name, n, p.runs.Load(), claims)
			}
			p.off.Store(0)
		}
		for name, p := range both {
			until(t, 3*time.Minute, "delivered after the clock is right", func() bool { return delivered(t, p.db, "s2") == 2 })
			at, _ := p.ran.Load(p.claim)
			if early := p.over.Sub(at.(time.Time)); early > 0 || p.runs.Load() != 2 {
				t.Errorf("%s: the claimed event ran %v before the lease was over; %d runs in all", name, early, p.runs.Load())
			}
			if len(p.logs.Lines("ERROR", "the clock of this process is off")) != 1 || len(p.logs.Lines("the clock of this process is right again")) != 1 {
				t.Errorf("%s: the log does not say once that the clock is off, and once that it is right", name)
			}
		}
	})
}
