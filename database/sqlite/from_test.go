package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openloam/loam/database/sqlite"
)

// A pool that the application has is used as it is, and left open.
func TestFrom(t *testing.T) {
	t.Parallel()
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db")+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	db, err := sqlite.From(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	err = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE x (y)`)
		return err
	})
	if err != nil || db.Write() != pool {
		t.Errorf("it writes on another pool, or not at all: %v", err)
	}
	if _, err := db.Read().ExecContext(t.Context(), `DROP TABLE x`); err == nil {
		t.Error("the pool for reading writes")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := pool.ExecContext(t.Context(), `DROP TABLE x`); err != nil {
		t.Errorf("the application's pool was closed: %v", err)
	}
}

// A pool that would not do is refused, with the words to add.
func TestFromRefuses(t *testing.T) {
	t.Parallel()
	for settings, add := range map[string]string{
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)":                  "add _txlock=immediate",
		"?_txlock=deferred&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)": "add _txlock=immediate",
		"?_txlock=immediate&_pragma=busy_timeout(10000)":                          "add _pragma=journal_mode(WAL)",
		"?_txlock=immediate&_pragma=journal_mode(WAL)":                            "add _pragma=busy_timeout(10000)",
	} {
		pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db")+settings)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqlite.From(t.Context(), pool); err == nil || !strings.Contains(err.Error(), add) {
			t.Errorf("%s: %v, want %q", settings, err, add)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
	memory, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	if _, err := sqlite.From(t.Context(), memory); err == nil || !strings.Contains(err.Error(), "in memory") {
		t.Errorf("in memory: %v", err)
	}
	if _, err := sqlite.From(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("nil: %v", err)
	}
}
