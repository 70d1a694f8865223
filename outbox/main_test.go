package outbox_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const paid = "billing.invoice.paid"

// entries are all rows, by status.
func entries(t *testing.T, r *rig.Rig, status outbox.Status) []outbox.Entry {
	t.Helper()
	all, err := r.Queue.List(t.Context(), outbox.Query{Status: status, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// foreign inserts a row as a writer that is not ours does.
func foreign(t *testing.T, db *database.DB, columns, values string, args ...any) {
	t.Helper()
	rig.Exec(t, db, `INSERT INTO event_queue (`+columns+`) VALUES (`+values+`)`, args...)
}
