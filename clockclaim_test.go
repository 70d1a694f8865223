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

// A process whose clock is 20 minutes off leaves the claim of another alone, and the events that wait. Once its clock is right it
// runs those at its next comparison, and the claim's when the lease is over: it does not wait for its old clock's time.
//
// contract: D-23, L-02, L-08
// scenario: B165
func TestClockOffLeavesClaimsAlone(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for _, offset := range []time.Duration{20 * time.Minute, -20 * time.Minute} {
			t.Run(offset.String(), func(t *testing.T) {
				t.Parallel()
				db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, db.Dialect()))
				var off atomic.Int64
				var ran sync.Map // event => when it ran first
				var runs atomic.Int64
				reg := durable.NewRegistry()
				reg.RegisterFunc("s2", "order.item.", func(_ context.Context, e events.Event) error {
					ran.LoadOrStore(e.ID, time.Now())
					runs.Add(1)
					return nil
				})
				id, over := claimByAnother(t, db, newEngine(t, db, reg))
				off.Store(int64(offset))
				logs := &rig.Logs{}
				engine := startEngine(t, db, reg, shortLease, sweepEvery(time.Second), func(c *loam.Config) {
					c.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
					c.Logger = slog.New(logs)
				})
				free := killEvent(2)
				if err := engine.Publish(inTenant(t), "order.item.placed", nil, events.WithID(free)); err != nil {
					t.Fatal(err)
				}
				// It has had the time to look at claims, every 200 ms, and for what is due.
				until(t, time.Minute, "swept", func() bool { return sweeps(t, db) >= 4 })
				var claims int
				rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE owner = 'another' AND status = 'in_progress' AND lease_until > $1`,
					[]any{time.Now().UnixMilli()}, &claims)
				if n := count(t, db, `status = 'pending' AND runs = 0`); n != 2 || runs.Load() != 0 || claims != 1 {
					t.Errorf("with the clock off: %d rows wait, %d runs, %d claims of the other", n, runs.Load(), claims)
				}
				off.Store(0)
				until(t, 3*time.Minute, "delivered after the clock is right", func() bool { return delivered(t, db, "s2") == 2 })
				at, _ := ran.Load(id)
				if early := over.Sub(at.(time.Time)); early > 0 || runs.Load() != 2 {
					t.Errorf("the claimed event ran %v before the lease was over; %d runs in all", early, runs.Load())
				}
				if len(logs.Lines("ERROR", "the clock of this process is off")) != 1 || len(logs.Lines("the clock of this process is right again")) != 1 {
					t.Error("the log does not say once that the clock is off, and once that it is right")
				}
			})
		}
	})
}
