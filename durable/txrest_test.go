package durable_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-17, L-08. Long transactional handlers, one right after the other, do not keep SQLite's lock from another process: there is no
// line for it among processes, only a look every 100 ms.
func TestAnotherProcessWritesBetweenTransactionalHandlers(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, database.SQLite))
	r := rig.New(t, db)
	account(t, db)
	other, _ := process(t, r)
	const handlers, each = 12, 150 * time.Millisecond
	r.Registry.RegisterTx("books", paid, func(ctx context.Context, tx *sql.Tx, _ events.Event) error {
		<-time.After(each)
		return add(ctx, tx)
	}, durable.WithTimeout(time.Minute))
	ids := publishMany(r, handlers, paid, "books")
	done := background(r, ids...)
	writes := 0
	for ended := false; !ended; writes++ {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			ended = true
		default:
			rig.Exec(t, other.DB, `UPDATE account SET id = 1`)
			<-time.After(50 * time.Millisecond)
		}
	}
	wantBalance(t, db, 7*handlers)
	if writes < handlers {
		t.Errorf("the other process wrote %d times beside %d handlers", writes, handlers)
	}
}
