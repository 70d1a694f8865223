package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/internal/txmark"
	"github.com/openloam/loam/migrations"
)

// each runs f for every kind of database, with a place where nothing is yet.
func each(t *testing.T, f func(t *testing.T, p dbtest.Place)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f(t, dbtest.Empty(t, kind))
		})
	}
}

// connect opens the database at a place. It is not migrated.
func connect(ctx context.Context, p dbtest.Place) (*database.DB, error) {
	if p.Dialect == database.PostgreSQL {
		return postgres.Open(ctx, p.At)
	}
	return sqlite.Open(ctx, p.At)
}

// open is connect until the end of the test.
func open(t *testing.T, p dbtest.Place) *database.DB {
	t.Helper()
	db, err := connect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// schema is the text of every table and index, in the order of their names.
func schema(t *testing.T, db *database.DB) string {
	t.Helper()
	if db.Dialect() == database.SQLite {
		return rig.Dump(t, db, `SELECT type, name, sql FROM sqlite_schema ORDER BY type, name`)
	}
	return rig.Dump(t, db, `SELECT c.relname || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' ||
			coalesce(pg_get_expr(d.adbin, d.adrelid), '')
		  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'S') AND a.attnum > 0
		UNION ALL SELECT tablename || ' ' || indexdef FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
		 WHERE connamespace = current_schema()::regnamespace ORDER BY 1`)
}

// contract: M-01. One call makes the whole schema, River's included, and a second one finds nothing to do and harms no row.
func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		db := open(t, p)
		now := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))
		first, err := migrations.Migrate(t.Context(), db, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(first.Applied) < 2 || first.Applied[0] != "river 1" || !slices.Contains(first.Applied, "0001_deliveries") {
			t.Errorf("applied %q", first.Applied)
		}
		for _, table := range []string{
			"event_deliveries", "processed_events", "loam_tenants", "loam_pauses", "loam_migrations",
			"river_job", "river_queue", "river_leader", "river_migration",
		} {
			if err := db.Read().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(new(int)); err != nil {
				t.Errorf("there is no table %s: %v", table, err)
			}
		}
		var at database.Time
		rig.Scan(t, db, `SELECT applied_at FROM loam_migrations WHERE version = 1 AND name = '0001_deliveries'`, nil, &at)
		if !at.Equal(now) {
			t.Errorf("applied at %v", at)
		}
		rig.Exec(t, db, `INSERT INTO loam_tenants (id, created_at) VALUES ('acme', '2026-01-02 03:04:05.000000')`)
		before := schema(t, db)
		second, err := migrations.Migrate(t.Context(), db, now.Add(time.Hour))
		if err != nil || len(second.Applied) != 0 {
			t.Errorf("the second time: applied %q, %v", second.Applied, err)
		}
		var tenants int
		rig.Scan(t, db, `SELECT count(*) FROM loam_tenants`, nil, &tenants)
		if after := schema(t, db); after != before || tenants != 1 {
			t.Errorf("the second time changed the schema, or lost rows (%d tenants)\nbefore:\n%s\nafter:\n%s", tenants, before, after)
		}
	})
}

// contract: M-01. Ten at once on one new file, each with a handle of its own: all succeed, and each migration is applied
// once.
func TestTenAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		const n = 10
		applied, ready, start := make(chan []string, n), make(chan struct{}, n), make(chan struct{})
		var all sync.WaitGroup
		for range n {
			db := open(t, p)
			all.Go(func() {
				ready <- struct{}{}
				<-start
				res, err := migrations.Migrate(t.Context(), db, time.Now())
				if err != nil {
					t.Error(err)
				}
				applied <- res.Applied
				if err := migrations.Check(t.Context(), db); err != nil {
					t.Errorf("after its own Migrate: %v", err)
				}
			})
		}
		for range n {
			<-ready
		}
		close(start)
		all.Wait()
		close(applied)
		reference := open(t, dbtest.Empty(t, p.Dialect))
		alone, err := migrations.Migrate(t.Context(), reference, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		worked := 0
		for names := range applied {
			if len(names) > 0 {
				worked++
				if !slices.Equal(names, alone.Applied) {
					t.Errorf("one applied %q, alone it is %q", names, alone.Applied)
				}
			}
		}
		if worked != 1 {
			t.Errorf("%d of the ten applied migrations, want one", worked)
		}
		if schema(t, open(t, p)) != schema(t, reference) {
			t.Error("the schema is not what one alone makes")
		}
	})
}

// contract: M-01. Opening counts too: processes that start together on a file that is not there yet.
func TestTenOpenAndMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				<-start
				db, err := connect(t.Context(), p)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
					t.Errorf("migrate: %v", err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		if err := migrations.Check(t.Context(), open(t, p)); err != nil {
			t.Error(err)
		}
	})
}

// contract: M-01. A migration that fails leaves nothing behind, on SQLite River's tables neither, and goes through when the
// obstacle is gone.
func TestAFailedMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		db := open(t, p)
		rig.Exec(t, db, `CREATE TABLE loam_pauses (somebody_elses TEXT)`) // the last table of the first migration
		before := schema(t, db)
		res, err := migrations.Migrate(t.Context(), db, time.Now())
		if err == nil || !strings.Contains(err.Error(), "0001_deliveries") || !strings.Contains(err.Error(), "loam_pauses") || len(res.Applied) != 0 {
			t.Errorf("applied %q, got %v, want an error that names the migration and the table", res.Applied, err)
		}
		if after := ours(schema(t, db)); after != ours(before) {
			t.Errorf("it left\n%s", after)
		}
		if err := migrations.Check(t.Context(), db); !errors.Is(err, migrations.ErrNotMigrated) {
			t.Errorf("Check: got %v, want ErrNotMigrated", err)
		}
		if db.Dialect() == database.SQLite && schema(t, db) != before {
			t.Errorf("it left River's tables")
		}
		rig.Exec(t, db, `DROP TABLE loam_pauses`)
		if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
			t.Error(err)
		}
		if err := migrations.Check(t.Context(), db); err != nil {
			t.Error(err)
		}
	})
}

// ours are the lines of a schema that are not River's.
func ours(schema string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(schema, "\n"), func(line string) bool { return strings.Contains(line, "river") }), "\n")
}

// contract: M-01. An application may have River's tables already.
func TestRiverIsThereAlready(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		db := open(t, p)
		if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
			t.Fatal(err)
		}
		want := schema(t, db)
		rig.Exec(t, db, `DROP TABLE event_deliveries; DROP TABLE processed_events; DROP TABLE loam_tenants; DROP TABLE loam_pauses;
			DROP TABLE loam_subscribers; DROP TABLE event_queue; DROP TABLE loam_migrations`)
		res, err := migrations.Migrate(t.Context(), db, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range res.Applied {
			if strings.HasPrefix(name, "river") {
				t.Errorf("applied %s again", name)
			}
		}
		if schema(t, db) != want {
			t.Error("the schema is another one than from the start")
		}
	})
}

// contract: M-01. Check says what to do, and neither creates nor changes anything.
func TestCheck(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		db := open(t, p)
		err := migrations.Check(t.Context(), db)
		if !errors.Is(err, migrations.ErrNotMigrated) || !strings.Contains(err.Error(), "Engine.Migrate") || !strings.Contains(err.Error(), "loam migrate") {
			t.Errorf("an empty database: got %v, want ErrNotMigrated and what to do", err)
		}
		if got := schema(t, db); got != "" {
			t.Errorf("Check created\n%s", got)
		}
		if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := migrations.Check(t.Context(), db); err != nil {
			t.Errorf("a migrated database: %v", err)
		}
		rig.Exec(t, db, `DELETE FROM loam_migrations`) // as an older build would have left it
		if err := migrations.Check(t.Context(), db); !errors.Is(err, migrations.ErrNotMigrated) {
			t.Errorf("an older schema: got %v, want ErrNotMigrated", err)
		}
	})
}

// contract: E-16. Inside a transaction Migrate is refused at once.
func TestMigrateInsideATransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p dbtest.Place) {
		db := open(t, p)
		err := db.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			_, err := migrations.Migrate(ctx, db, time.Now())
			return err
		})
		if !errors.Is(err, txmark.ErrInTransaction) {
			t.Errorf("got %v, want ErrInTransaction", err)
		}
	})
}
