package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/pgserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/tenant"
)

// Two relays over handles of their own share the rows, while their sinks are slow: each row is sent once, by one of them.
//
// contract: O-03
// scenario: B114, B117
func TestTwoRelaysShareTheRows(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 2500
		r := rig.New(t, db)
		again, _ := dbtest.Again(t, db)
		rig.Exec(t, db, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO event_queue (event_id, tenant_id, event_type, payload, created_at)
			SELECT '00000000-0000-7000-8000-' || substr('00000000000' || i, length('00000000000' || i) - 11), 'acme', $2,
			       '{"actor_id":null,"tenant_id":"acme"}', $3 FROM n`, n, paid, database.At(r.Clock.Now()))
		s := &sink{}
		slow := func(time.Time) { time.Sleep(20 * time.Millisecond) } // while the other looks
		var all sync.WaitGroup
		took := make([]int, 2)
		for i, p := range []*rig.Rig{r, rig.Over(t, again, r.Clock)} {
			q := p.WithSink(relayed{s, slow})
			all.Go(func() {
				for idle := 0; idle < 3; {
					k, err := q.Round(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if k == 0 {
						idle++
					}
					took[i] += k
				}
			})
		}
		all.Wait()
		if k, twice := s.count(); k != n || twice != 0 || took[0]+took[1] != n {
			t.Errorf("%d of %d were sent, %d of them twice; the relays took %v", k, n, twice, took)
		}
		var done int
		if rig.Scan(t, db, `SELECT count(*) FROM event_queue WHERE status = 'done'`, nil, &done); done != n {
			t.Errorf("%d rows are done, want %d", done, n)
		}
	})
}

// relayed is a relay's way to a shared sink.
type relayed struct {
	to   *sink
	slow func(time.Time)
}

func (r relayed) Send(ctx context.Context, evs []events.Event) []error {
	r.slow(time.Time{})
	return r.to.Send(ctx, evs)
}

// directory cannot say whether one tenant exists.
type directory struct {
	tenant.Directory
	broken *bool
}

func (d directory) Exists(ctx context.Context, q tenant.Querier, id string) (bool, error) {
	if id == "globex" && *d.broken {
		return false, errors.New("its queries fail")
	}
	return d.Directory.Exists(ctx, q, id)
}

// A tenant whose queries fail keeps no other waiting. Its rows spend no attempt, however long that lasts, and are captured once
// each when they no longer fail.
//
// contract: O-04, O-07
// scenario: B116
func TestATenantWhoseQueriesFail(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		broken := false
		r := rig.New(t, db, func(c *durable.Config) { c.Tenants = directory{c.Tenants, &broken} })
		r.Registry.RegisterFunc("mailer", paid, nothing)
		for range 5 {
			r.Enqueue("globex", paid, nil)
			r.Enqueue("acme", paid, nil)
		}
		broken = true
		for range 20 {
			r.Relay()
			r.Clock.Add(5 * time.Minute)
		}
		left := entries(t, r, outbox.Pending)
		if len(r.Rows("acme")) != 5 || len(left) != 5 || left[0].Attempts != 0 || left[0].Deferrals != 20 {
			t.Errorf("acme has %d deliveries; left are %d rows: %+v", len(r.Rows("acme")), len(left), left)
		}
		broken = false
		for range 20 {
			r.Relay()
			r.Clock.Add(5 * time.Minute)
		}
		if a, g, done := len(r.Rows("acme")), len(r.Rows("globex")), len(entries(t, r, outbox.Done)); a != 5 || g != 5 || done != 10 {
			t.Errorf("%d and %d deliveries, %d rows done; want 5, 5, 10", a, g, done)
		}
	})
}

// A dump that is restored into another cluster goes on where it was: what was not sent is sent, what was is not, and new
// events are.
//
// contract: O-03
// scenario: B107
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		before := &sink{}
		for range 100 {
			r.Enqueue("acme", paid, nil)
		}
		rounds(t, r.WithSink(before))
		for range 100 {
			r.Enqueue("acme", paid, nil)
		}
		at := dbtest.PlaceOf(t, db)
		if db.Dialect() == database.PostgreSQL {
			to := pgserver.Start(t).URL()
			pipe := fmt.Sprintf(`pg_dump --no-owner %q | psql -q -v ON_ERROR_STOP=1 %q`, at.At, to)
			if out, err := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", pipe).CombinedOutput(); err != nil { //nolint:gosec // a test
				t.Fatalf("%v: %s", err, out)
			}
			at.At = to
		} else {
			to := at.At + "-restored"
			if _, err := db.Write().ExecContext(t.Context(), `VACUUM INTO $1`, to); err != nil {
				t.Fatal(err)
			}
			at.At = to
		}
		restored, _ := dbtest.OpenPlace(t, at)
		r = rig.Over(t, restored, r.Clock)
		after := &sink{}
		rounds(t, r.WithSink(after))
		for range 10 {
			r.Enqueue("acme", paid, nil)
		}
		rounds(t, r.WithSink(after))
		if n, twice := after.count(); n != 110 || twice != 0 {
			t.Errorf("%d were sent, %d of them twice; want 110 and 0", n, twice)
		}
		for id := range after.sent {
			if before.sent[id] > 0 {
				t.Errorf("%s had been sent before the dump", id)
			}
		}
	})
}
