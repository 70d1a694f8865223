// Package dbtest opens databases for tests: real ones, migrated, with statements that can be made to fail.
//
// PostgreSQL is tested when LOAM_TEST_POSTGRES has the URL of a server where databases may be created; make postgres
// starts one.
package dbtest

import (
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/migrations"
)

// ForEach runs f as a parallel subtest for every kind of database, each time with a fresh one.
func ForEach(t *testing.T, f func(t *testing.T, db *database.DB, faults *Faults)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, faults := OpenPlace(t, Fresh(t, kind))
			f(t, db, faults)
		})
	}
}

// wait is longer than the default: under the race detector SQLite, which is C translated to Go, is very slow.
const wait = time.Minute

// Open opens a fresh, migrated SQLite database, closed at the end of the test.
func Open(t testing.TB) (*database.DB, *Faults) {
	t.Helper()
	return OpenPlace(t, Fresh(t, database.SQLite))
}

// OpenFile is Open for a file that may be there already.
func OpenFile(t testing.TB, path string) (*database.DB, *Faults) {
	t.Helper()
	return OpenPlace(t, Place{database.SQLite, path})
}

// OpenPlace opens and migrates the database at a place. It is closed at the end of the test.
func OpenPlace(t testing.TB, p Place) (*database.DB, *Faults) {
	t.Helper()
	faults := &Faults{}
	db, err := p.open(t.Context(), faults)
	if err != nil {
		t.Fatal(err)
	}
	places.Store(db, p)
	t.Cleanup(func() {
		places.Delete(db)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := migrations.Migrate(t.Context(), db, time.Now()); err != nil {
		t.Fatal(err)
	}
	return db, faults
}

// Again opens the database of db once more, as another process does.
func Again(t testing.TB, db *database.DB) (*database.DB, *Faults) {
	t.Helper()
	return OpenPlace(t, PlaceOf(t, db))
}
