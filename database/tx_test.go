package database_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/internal/txmark"
)

func insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO notes (text) VALUES ('x')`)
	return err
}

// notes counts what other connections see.
func notes(ctx context.Context, t *testing.T, db *database.DB) (n int) {
	t.Helper()
	if err := db.Read().QueryRowContext(ctx, `SELECT count(*) FROM notes`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func createNotes(t *testing.T, db *database.DB) {
	t.Helper()
	rig.Exec(t, db, `CREATE TABLE notes (text TEXT)`)
}

// What fn does is there when it returns nil, to others only after the commit, and in every other case not at all; then the
// next transaction is free to begin.
func TestInTxIsAllOrNothing(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		createNotes(t, db)
		errOurs := errors.New("ours")
		if err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insert(ctx, tx), errOurs)
		}); !errors.Is(err, errOurs) || notes(t.Context(), t, db) != 0 {
			t.Errorf("an error: got %v, %d rows", err, notes(t.Context(), t, db))
		}

		value := &struct{}{}
		func() {
			defer func() {
				if got := recover(); got != value || notes(t.Context(), t, db) != 0 {
					t.Errorf("a panic: got %v, %d rows", got, notes(t.Context(), t, db))
				}
			}()
			_ = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_ = insert(ctx, tx)
				panic(value)
			})
		}()

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_ = insert(ctx, tx)
				runtime.Goexit()
				return nil
			})
		}()
		if <-ended; notes(t.Context(), t, db) != 0 {
			t.Error("Goexit: the row is there")
		}

		ctx, cancel := context.WithCancel(t.Context())
		err := db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			defer cancel()
			return insert(ctx, tx)
		})
		if err == nil || notes(t.Context(), t, db) != 0 {
			t.Errorf("the context ended in the middle: got %v, %d rows", err, notes(t.Context(), t, db))
		}

		if err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if err := insert(ctx, tx); err != nil || notes(ctx, t, db) != 0 {
				t.Errorf("before the commit: %v, others see %d rows", err, notes(ctx, t, db))
			}
			return nil
		}); err != nil || notes(t.Context(), t, db) != 1 {
			t.Errorf("after the commit: %v, others see %d rows", err, notes(t.Context(), t, db))
		}
	})
}

// A begin or a commit that fails is an error that says which; nothing is written, and the connection serves the next.
func TestInTxWhenTheDatabaseFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		createNotes(t, db)
		errDown := errors.New("down")
		for _, kind := range []string{"begin", "commit", "exec"} {
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == kind {
					return errDown
				}
				return nil
			})
			err := db.InTx(t.Context(), insert)
			faults.Before(nil)
			if !errors.Is(err, errDown) || notes(t.Context(), t, db) != 0 {
				t.Errorf("%s fails: got %v, %d rows", kind, err, notes(t.Context(), t, db))
			}
		}
		if err := db.InTx(t.Context(), insert); err != nil || notes(t.Context(), t, db) != 1 {
			t.Errorf("afterwards: %v, %d rows", err, notes(t.Context(), t, db))
		}
	})
}

// contract: E-16. On a context inside a transaction another one is refused at once, whoever marked it; a transaction of
// another database is no obstacle, nor is one that has ended.
func TestTransactionsDoNotNest(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		other, _ := dbtest.Open(t)
		if db.InTransaction(t.Context()) {
			t.Fatal("a fresh context is inside a transaction")
		}
		err := db.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			for what, err := range map[string]error{
				"InTx":      db.InTx(ctx, nothing),
				"InTxFirst": db.InTxFirst(ctx, nothing),
			} {
				if !errors.Is(err, txmark.ErrInTransaction) {
					t.Errorf("%s inside: got %v, want ErrInTransaction", what, err)
				}
			}
			if !db.InTransaction(ctx) || other.InTransaction(ctx) {
				t.Errorf("inside: %v, and for another database %v", db.InTransaction(ctx), other.InTransaction(ctx))
			}
			return other.InTx(ctx, nothing)
		})
		if err != nil {
			t.Errorf("a transaction of another database inside: %v", err)
		}
		if err := db.InTx(db.MarkTx(t.Context()), nothing); !errors.Is(err, txmark.ErrInTransaction) {
			t.Errorf("on a marked context: got %v", err)
		}
		if err := db.InTx(t.Context(), nothing); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
