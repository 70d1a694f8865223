package outbox_test

import (
	"errors"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// The answer of the mark's commit is lost: it is made again, and no claim was lost. The row counts as done, once.
//
// contract: O-03
func TestAMarkWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		q := r.WithSink(&sink{})
		r.Enqueue("acme", paid, nil)
		commits := 0
		faults.After(func(op dbtest.Op) error {
			if op.Kind != "commit" {
				return nil
			}
			if commits++; commits == 2 { // after that of the claim
				return errors.New("connection lost")
			}
			return nil
		})
		rounds(t, q)
		if lost, done := r.Count("loam.outbox.claims_lost"), r.Count("loam.outbox.done"); lost != 0 || done != 1 {
			t.Errorf("%d claims lost, %d rows done; want 0 and 1", lost, done)
		}
	})
}
