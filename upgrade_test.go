package loam_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: M-03. Rows that a build with the first migration only has written run after the upgrade.
// scenario: B172
func TestUpgradeFromTheFirstSchema(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		db := s.unmigrated(t)
		first, err := os.ReadFile(fmt.Sprintf("migrations/%s/0001_deliveries.sql", s.place.Dialect))
		if err != nil {
			t.Fatal(err)
		}
		rig.Exec(t, db, string(first))
		rig.Exec(t, db, `CREATE TABLE loam_migrations (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL);
		INSERT INTO loam_migrations VALUES (1, '0001_deliveries', '2026-01-01 00:00:00.000000');
		INSERT INTO loam_tenants VALUES ('acme', '2026-01-01 00:00:00.000000');
		INSERT INTO event_deliveries (id, tenant_id, event_id, subscriber_key, event_name, queue, payload, created_at, updated_at)
		VALUES ('d1', 'acme', 'e1', 's2', 'order.item.placed', 'loam', '{}', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')`)
		engine := newUnmigrated(t, db)
		if err := engine.Start(t.Context()); err == nil {
			t.Fatal("it starts without the second migration")
		}
		if err := engine.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s2") == 1 })
	})
}

// unmigrated opens the database of a site as it is.
func (s site) unmigrated(t *testing.T) *database.DB {
	t.Helper()
	open := sqlite.Open
	if s.place.Dialect == database.PostgreSQL {
		open = postgres.Open
	}
	db, err := open(t.Context(), s.place.At)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newUnmigrated(t *testing.T, db *database.DB) *loam.Engine {
	t.Helper()
	engine, err := loam.New(loam.Config{DB: db, Registry: registryWith("s2")})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// contract: J-01. A job with a field that this build does not know, and a sweep's job without any of its fields, run.
// scenario: B173
func TestJobsOfOtherBuilds(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := newEngine(t, db, registryWith("s2"))
		if err := engine.Publish(inTenant(t), "order.item.placed", nil); err != nil {
			t.Fatal(err)
		}
		add, empty, failures := `jsonb_set(args, '$.of_a_later_build', jsonb('{"x": 1}'))`, `jsonb('{}')`, `json_array_length(errors)`
		if db.Dialect() == database.PostgreSQL {
			add, empty, failures = `jsonb_set(args, '{of_a_later_build}', '{"x": 1}')`, `'{}'`, `cardinality(errors)`
		}
		rig.Exec(t, db, `UPDATE river_job SET args = `+add)
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s2") == 1 })
		rig.Exec(t, db, `INSERT INTO river_job (args, kind, max_attempts, queue, state, priority, scheduled_at)
		VALUES (`+empty+`, 'open_loam_event_redelivery_sweep', 1, $1, 'available', 1, CURRENT_TIMESTAMP)`, durable.MaintenanceQueue)
		until(t, time.Minute, "all jobs done", func() bool {
			var open, failed int
			rig.Scan(t, db, `SELECT count(*) FILTER (WHERE state IN ('available', 'running')), count(*) FILTER (WHERE `+failures+` > 0)
			FROM river_job`, nil, &open, &failed)
			if failed > 0 {
				t.Fatalf("%d jobs have failed", failed)
			}
			return open == 0
		})
	})
}

// contract: S-01, S-03. Another client of River's leads, which does not have our periodic job: a due row whose job was lost
// is woken within two intervals all the same.
// scenario: B034
func TestSomebodyElseLeads(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		rig.Exec(t, db, `INSERT INTO river_leader (name, leader_id, elected_at, expires_at)
		VALUES ('default', 'somebody', $1, $2)`, database.At(time.Now()), database.At(time.Now().Add(time.Hour)))
		engine := startEngine(t, db, registryWith("s2"), func(c *loam.Config) { c.SweepEvery = 4 * time.Second })
		until(t, time.Minute, "swept at the start", func() bool {
			var n int
			rig.Scan(t, db, `SELECT count(*) FROM river_job WHERE kind = 'open_loam_event_redelivery_sweep' AND state = 'completed'`, nil, &n)
			return n > 0
		})
		err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			if err := engine.PublishTx(ctx, tx, "order.item.placed", nil); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `DELETE FROM river_job WHERE kind = 'loam_event_delivery'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s2") == 1 })
		t.Logf("woken %v after its job was lost, with a sweep due every 4s", time.Since(lost).Round(time.Millisecond))
		var leader string
		rig.Scan(t, db, `SELECT leader_id FROM river_leader`, nil, &leader)
		if leader != "somebody" {
			t.Errorf("%s leads: the test shows nothing", leader)
		}
	})
}
