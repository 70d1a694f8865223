package outbox_test

import (
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// A row that another program is at, which says nothing of when it claimed it, counts as claimed when a relay sees it first:
// nothing is stranded in processing. A row without an event id has one when it is sent.
//
// contract: O-03
// model: 184
func TestProcessingWithoutAClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		insert := func() {
			foreign(t, db, "tenant_id, event_type, payload, status", "'acme', $1, '{}', 'processing'", paid)
		}
		insert()
		if n := r.Relay(); n != 0 {
			t.Errorf("%d rows were taken from a program that may be at them", n)
		}
		r.Clock.Add(outbox.Lease - time.Millisecond)
		if n := r.Relay(); n != 0 {
			t.Errorf("%d rows were taken before the claim was over", n)
		}
		r.Clock.Add(time.Millisecond)
		if n := r.Relay(); n != 1 || len(r.Rows("acme")) != 1 {
			t.Errorf("%d rows were taken when it was over, want 1", n)
		}
		insert()
		s := &sink{}
		q := r.WithSink(s)
		rounds(t, q)
		r.Clock.Add(outbox.Lease)
		rounds(t, q)
		for _, e := range entries(t, r, outbox.Done) {
			if e.EventID != "" && s.sent[e.EventID] == 1 {
				return
			}
		}
		t.Errorf("sent were %v", s.sent)
	})
}
