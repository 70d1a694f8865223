package loam_test

import (
	"context"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// A process whose clock is 20 minutes ahead deletes no claim of another, also of a row that cannot be run now.
//
// contract: D-23
// scenario: B165
func TestClockOffDeletesNoClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("s2", "order.item.", func(context.Context, events.Event) error { return nil })
		claimByAnother(t, db, newEngine(t, db, reg))
		rig.Exec(t, db, `INSERT INTO loam_pauses VALUES ('acme', 's2', '2026-01-01')`)
		startEngine(t, db, reg, shortLease, sweepEvery(time.Second), func(c *loam.Config) {
			c.Now = func() time.Time { return time.Now().Add(20 * time.Minute) }
		})
		until(t, time.Minute, "swept", func() bool { return sweeps(t, db) >= 4 })
		var claims int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE owner = 'another'`, nil, &claims)
		if claims != 1 {
			t.Error("the claim of the other, live by the database's clock, is gone")
		}
	})
}
