package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// On PostgreSQL a process that does not relay tells those that do, once it has committed: a publish of its own, InTx, and a
// transaction that the caller began. One that is rolled back tells nobody. On SQLite there are no notices.
//
// contract: O-05
func TestNotices(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		again, _ := dbtest.Again(t, db)
		if db.Dialect() == database.SQLite {
			if err := again.Notices(t.Context(), "loam_event_queue", func() {}); err == nil {
				t.Error("there are notices")
			}
			r.Queue.Listen(t.Context()) // returns
			return
		}
		heard, ctx := make(chan struct{}, 100), t.Context()
		listening, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- again.Notices(listening, "loam_event_queue", func() { heard <- struct{}{} }) }()
		hear := func(what string) {
			t.Helper()
			select {
			case <-heard:
			case <-time.After(30 * time.Second):
				t.Fatalf("nothing was heard: %s", what)
			}
		}
		hear("that it listens")
		event := func() events.Event {
			e, err := events.New(r.Ctx("acme"), paid, nil, rig.Limits)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		own := func(commit bool) {
			tx, err := db.Write().BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Queue.Enqueue(ctx, tx, event()); err != nil {
				t.Fatal(err)
			}
			if !commit {
				err = tx.Rollback()
			} else {
				err = tx.Commit()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		own(false)
		own(true)
		hear("a transaction of the caller's own")
		if len(heard) != 0 { // the one that was rolled back came first
			t.Error("a notice too many")
		}
		if err := r.Queue.Publish(ctx, event()); err != nil {
			t.Fatal(err)
		}
		hear("Publish")
		if err := db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return r.Queue.Enqueue(ctx, tx, event()) }); err != nil {
			t.Fatal(err)
		}
		hear("InTx")
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}
