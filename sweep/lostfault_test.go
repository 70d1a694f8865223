package sweep_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// A check for lost claims that fails at any statement says so, and what it has not done the next one does: the delivery is
// woken, and the claim without one is deleted.
//
// contract: L-08, S-05
func TestLostClaimsWhenTheDatabaseFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return nil })
		e := r.Publish("acme", "billing.invoice.paid", nil)
		errDown := errors.New("down")
		for _, text := range []string{
			"FROM processed_events", "INSERT INTO test_wakeups", "CROSS JOIN event_deliveries", "DELETE FROM processed_events",
		} {
			r.Wakeups.Clear()
			rig.Exec(t, db, `DELETE FROM processed_events`)
			for _, event := range []string{e.ID, "gone"} {
				rig.Exec(t, db, `INSERT INTO processed_events VALUES ('acme', $1, 'mailer', 'in_progress', 1, 1, 'dead', NULL)`, event)
			}
			hit := false
			faults.Before(func(op dbtest.Op) error {
				if !strings.Contains(op.SQL, text) {
					return nil
				}
				hit = true
				return errDown
			})
			_, err := r.Sweeper.LostClaims(t.Context())
			faults.Before(nil)
			if !hit || !errors.Is(err, errDown) {
				t.Errorf("%s failed (%v): %v", text, hit, err)
			}
			if _, err := r.Sweeper.LostClaims(t.Context()); err != nil {
				t.Error(err)
			}
			var gone int
			rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE event_id = 'gone'`, nil, &gone)
			if gone != 0 || len(r.Wakeups.All()) == 0 {
				t.Errorf("%s failed: %d claims without a delivery are left, wake-ups %v", text, gone, r.Wakeups.All())
			}
		}
	})
}
