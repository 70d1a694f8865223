package loam_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database/sqlite"
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
	db, err := sqlite.Open(ctx, inDir("app.db"))
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

// nightly reports whether the long form of a test is asked for.
func nightly() bool { return os.Getenv("LOAM_NIGHTLY") != "" }

// contract: M-02, M-01. Twenty processes migrate an empty file at once: all succeed, and each migration is applied once.
// One that is killed in the middle does not block the others.
// scenario: B168 B169 B170
func TestTwentyMigrators(t *testing.T) {
	t.Parallel()
	rounds := 3
	if nightly() {
		rounds = 10
	}
	for range rounds {
		dir := t.TempDir()
		var all []*process
		for range 20 {
			all = append(all, startChild(t, "migrate", dir))
		}
		until(t, time.Minute, "ready", func() bool {
			ready, _ := filepath.Glob(filepath.Join(dir, "ready.*"))
			return len(ready) == len(all)
		})
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "in the middle", func() bool { return exists(filepath.Join(dir, "app.db-wal")) })
		_ = all[0].cmd.Process.Kill() // it may have ended already
		for i, p := range all {
			if killed := p.wait(); p.err != nil && (i != 0 || !killed) {
				t.Fatalf("migrator %d: %v\n%s", i, p.err, p.stderr.String())
			}
		}
		db, _ := dbtest.OpenFile(t, filepath.Join(dir, "app.db"))
		var ours, distinct int
		rig.Scan(t, db, `SELECT count(*), count(DISTINCT version) FROM loam_migrations`, nil, &ours, &distinct)
		if ours == 0 || ours != distinct {
			t.Errorf("%d migrations, %d versions", ours, distinct)
		}
	}
}
