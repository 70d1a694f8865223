// Package dbtest opens databases for tests: real ones, migrated, with statements that can be made to fail.
package dbtest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/migrations"
)

// ForEach runs f as a parallel subtest for every kind of database, each time with a fresh one.
func ForEach(t *testing.T, f func(t *testing.T, db *database.DB, faults *Faults)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, faults := Open(t)
		f(t, db, faults)
	})
}

// wait is longer than the default: under the race detector SQLite, which is C translated to Go, is very slow.
const wait = time.Minute

// Open opens a fresh, migrated SQLite database, closed at the end of the test.
func Open(t testing.TB) (*database.DB, *Faults) {
	t.Helper()
	return OpenFile(t, filepath.Join(t.TempDir(), "test.db"))
}

// OpenFile is Open for a file that may be there already.
func OpenFile(t testing.TB, path string) (*database.DB, *Faults) {
	t.Helper()
	faults := &Faults{}
	db, err := sqlite.OpenConfig(t.Context(), sqlite.Config{Path: path, Wait: wait, Wrap: faults.wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
		t.Fatal(err)
	}
	return db, faults
}
