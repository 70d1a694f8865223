package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func init() {
	children["migrate"] = childMigrate
}

// childMigrate waits for the barrier, then opens the file, migrates it, and ends.
func childMigrate(ctx context.Context) (err error) {
	if err := os.WriteFile(inDir("ready."+strconv.Itoa(os.Getpid())), nil, 0o600); err != nil {
		return err
	}
	for !exists(inDir("go")) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	db, err := openChild(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	engine, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry()})
	if err != nil {
		return err
	}
	return engine.Migrate(ctx)
}

// begun waits until a migrator has written something.
func (s site) begun(t *testing.T) {
	t.Helper()
	if s.place.Dialect == database.SQLite {
		until(t, time.Minute, "in the middle", func() bool { return exists(filepath.Join(s.dir, "app.db-wal")) })
		return
	}
	db, err := sql.Open("pgx", s.place.At)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	until(t, time.Minute, "in the middle", func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(to_regclass('river_migration'))`).Scan(&n)
		return err == nil && n > 0
	})
}

// nightly reports whether the long form of a test is asked for.
func nightly() bool { return os.Getenv("LOAM_NIGHTLY") != "" }

// contract: M-02, M-01. Twenty processes migrate an empty file at once: all succeed, and each migration is applied once.
// One that is killed in the middle does not block the others.
// scenario: B168 B169 B170
func TestTwentyMigrators(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		rounds := 3
		if nightly() {
			rounds = 10
		}
		for range rounds {
			s := newSite(t, s.place.Dialect)
			dir := s.dir
			var all []*process
			for range 20 {
				all = append(all, startChild(t, "migrate", s))
			}
			until(t, time.Minute, "ready", func() bool {
				ready, _ := filepath.Glob(filepath.Join(dir, "ready.*"))
				return len(ready) == len(all)
			})
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.begun(t)
			_ = all[0].cmd.Process.Kill() // it may have ended already
			for i, p := range all {
				if killed := p.wait(); p.err != nil && (i != 0 || !killed) {
					t.Fatalf("migrator %d: %v\n%s", i, p.err, p.stderr.String())
				}
			}
			db, _ := dbtest.OpenPlace(t, s.place)
			var ours, distinct int
			rig.Scan(t, db, `SELECT count(*), count(DISTINCT version) FROM loam_migrations`, nil, &ours, &distinct)
			if ours == 0 || ours != distinct {
				t.Errorf("%d migrations, %d versions", ours, distinct)
			}
		}
	})
}
