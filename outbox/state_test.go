package outbox_test

import (
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// contract: V-02, O-04. The state counts what waits, what is deferred and what is dead_lettered.
func TestState(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		first := r.Clock.Now().Truncate(time.Microsecond)
		for range 3 {
			r.Enqueue("acme", paid, nil)
			r.Clock.Add(time.Minute)
		}
		at := func(d time.Duration) database.Time { return database.At(r.Clock.Now().Add(d)) }
		foreign(t, db, "tenant_id, event_type, payload, next_attempt_at", "'acme', $1, '{}', $2", paid, at(-time.Second))
		foreign(t, db, "tenant_id, event_type, payload, next_attempt_at", "'acme', $1, '{}', $2", paid, at(time.Second))
		foreign(t, db, "event_type, status", "$1, 'dead_lettered'", paid)
		foreign(t, db, "event_type, status", "$1, 'done'", paid)
		got, err := r.Queue.State(t.Context())
		if want := (outbox.State{Waiting: 4, Oldest: got.Oldest, Deferred: 1, DeadLettered: 1}); err != nil || got != want || !got.Oldest.Equal(first) {
			t.Errorf("%+v, %v; want %+v since %v", got, err, want, first)
		}
	})
}
