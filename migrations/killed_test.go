package migrations_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/migrations"
)

// contract: M-01, M-02. A migrator whose session ends in the middle of a migration, as when its process is killed, leaves
// nothing of it and blocks nobody: the next one does the rest. (SQLite's is in cmd/loam: there, the process itself.)
func TestAKilledMigratorOnPostgres(t *testing.T) {
	t.Parallel()
	p := dbtest.Empty(t, database.PostgreSQL)
	db, bystander := open(t, p), open(t, p)
	killed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	blocker, err := bystander.Write().BeginTx(t.Context(), nil) // the second migration waits for it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.ExecContext(t.Context(), `CREATE TABLE loam_subscribers (x int)`); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := migrations.Migrate(ctx, db, time.Now())
		killed <- err
	}()
	const inTheMiddle = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE loam_subscribers%'`
	for n := 0; n == 0; {
		select {
		case err := <-killed:
			t.Fatalf("the migrator has ended before its second migration: %v", err)
		default:
		}
		if err := bystander.Write().QueryRowContext(t.Context(), inTheMiddle).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // the process is gone, and tries no more
	if err := <-killed; err == nil {
		t.Error("the migrator says that it is done")
	}
	if err := blocker.Rollback(); err != nil {
		t.Error(err)
	}
	if got := rig.Dump(t, bystander, `SELECT name FROM loam_migrations`); got != "0001_deliveries" {
		t.Errorf("it left %q", got)
	}
	res, err := migrations.Migrate(t.Context(), bystander, time.Now())
	if err != nil || strings.Join(res.Applied, " ") != "0002_subscribers 0003_outbox" {
		t.Errorf("the next one applied %q, %v", res.Applied, err)
	}
}
