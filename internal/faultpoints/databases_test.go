package faultpoints_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// tables makes what the script needs beside the migrations: rig.New's wake-ups and tenants, and the callers' own data.
func tables(t testing.TB, db *database.DB) {
	t.Helper()
	rig.New(t, db)
	rig.Exec(t, db, `CREATE TABLE test_orders (id TEXT PRIMARY KEY)`)
}

// open makes the handles of a database, and its tables.
func open(t testing.TB, db *database.DB, faults *dbtest.Faults) handles {
	t.Helper()
	tables(t, db)
	sound, _ := dbtest.Again(t, db)
	return handles{db, faults, sound}
}

// clean brings a database back to where it was before the script.
func clean(t testing.TB, db *database.DB) {
	t.Helper()
	err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for _, table := range []string{"event_queue", "event_deliveries", "processed_events", "test_wakeups", "test_orders", "loam_tenants"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO loam_tenants (id, created_at) VALUES ('acme', $1), ('globex', $1)`,
			database.At(rig.NewClock().Now()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
