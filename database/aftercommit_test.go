package database_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// What is to be done after the commit is done then, and not after a rollback or a commit that failed.
func TestAfterCommit(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		called := 0
		run := func(result error) error {
			return db.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				db.AfterCommit(ctx, func() { called++ })
				db.AfterCommit(db.MarkTx(ctx), func() { called++ })
				if called%2 != 0 {
					t.Error("called before the commit")
				}
				return result
			})
		}
		if err := run(nil); err != nil || called != 2 {
			t.Errorf("committed: %v, %d calls, want 2", err, called)
		}
		if err := run(errors.New("no")); err == nil || called != 2 {
			t.Errorf("rolled back: %v, %d calls", err, called-2)
		}
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				return errors.New("no commit")
			}
			return nil
		})
		if err := run(nil); err == nil || called != 2 {
			t.Errorf("not committed: %v, %d calls", err, called-2)
		}
		faults.Before(nil)
		db.AfterCommit(t.Context(), func() { t.Error("called without a transaction") })
	})
}
