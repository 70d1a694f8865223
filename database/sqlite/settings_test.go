package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
)

// Every connection has the settings that were measured to give no "database is locked": those that write and those that
// read.
func TestSettings(t *testing.T) {
	t.Parallel()
	for sync, level := range map[sqlite.Sync]string{"": "1", sqlite.SyncNormal: "1", sqlite.SyncFull: "2"} {
		db, err := sqlite.OpenConfig(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "app.db"), Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeDB(t, db) })
		for pool, want := range map[*sql.DB]map[string]string{
			db.Write(): {"journal_mode": "wal", "busy_timeout": "10000", "foreign_keys": "1", "synchronous": level, "query_only": "0"},
			db.Read():  {"journal_mode": "wal", "busy_timeout": "10000", "foreign_keys": "1", "query_only": "1"},
		} {
			conns := pool.Stats().MaxOpenConnections
			if wanted := map[bool]int{true: 1, false: 4}[pool == db.Write()]; conns != wanted {
				t.Errorf("a pool of %d connections, want %d", conns, wanted)
			}
			var held []*sql.Conn
			for range conns { // each connection has its own
				conn, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, conn)
				for pragma, value := range want {
					var got string
					if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != value {
						t.Errorf("Sync %q: %s is %q (%v), want %q", sync, pragma, got, err, value)
					}
				}
			}
			for _, conn := range held {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := db.Read().ExecContext(t.Context(), `CREATE TABLE x (y)`); err == nil {
			t.Error("the pool for reading writes")
		}
	}
}

// A transaction has the write lock from its beginning, so that reading before writing cannot fail later.
func TestTheLockIsTakenAtTheBeginning(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	other, err := sql.Open("sqlite", "file:"+path+"?"+url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(0)"}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	begin := func() error {
		tx, err := other.BeginTx(t.Context(), nil)
		if err == nil {
			err = tx.Rollback()
		}
		return err
	}
	err = db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
		if err := database.Explain(begin()); !errors.Is(err, database.ErrBusy) {
			t.Errorf("another process begins: got %v, want ErrBusy", err)
		}
		return nil
	})
	if err := errors.Join(err, begin()); err != nil {
		t.Error(err)
	}
}

// Several handles on one file, as several processes have, opened and used at once: nobody sees "database is locked".
func TestSeveralHandlesOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	const handles, writes = 4, 25
	write(t, path)
	var all sync.WaitGroup
	for range handles {
		all.Go(func() {
			db, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer closeDB(t, db)
			for range writes {
				err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					var n int
					if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM writes`).Scan(&n); err != nil { // read, then write
						return err
					}
					_, err := tx.ExecContext(ctx, `INSERT INTO writes VALUES ($1)`, n)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := write(t, path); n != handles*writes+2 {
		t.Errorf("%d rows, want %d", n, handles*writes+2)
	}
}

// Config.Wait is the limit of waiting for the write connection.
func TestWait(t *testing.T) {
	t.Parallel()
	db, err := sqlite.OpenConfig(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "app.db"), Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	start := time.Now()
	err = db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
		return db.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }) //nolint:contextcheck // on purpose: not marked
	})
	if !errors.Is(err, database.ErrWait) {
		t.Errorf("got %v, want ErrWait", err)
	}
	if waited := time.Since(start); waited > 5*time.Second { // the default is 10 s
		t.Errorf("waited %v", waited)
	}
}
