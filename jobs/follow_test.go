package jobs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/jobs"
	"github.com/openloam/loam/sweep"
)

// followUps is the condition of the jobs that go on with a tenant's sweep.
const followUps = isSweep + ` AND args ->> 'tenant_id' IS NOT NULL AND state IN ('available', 'scheduled')`

// place is where sweeps were when they were full.
var place = database.At(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))

// due makes the follow-up's time come.
func due(t *testing.T, db *database.DB) {
	t.Helper()
	rig.Exec(t, db, `UPDATE river_job SET state = 'available', scheduled_at = '2026-01-01 00:00:00.000' WHERE `+followUps)
}

// checkFollowUp checks that exactly one job goes on where the sweep was, ten seconds after some time since.
func checkFollowUp(t *testing.T, db *database.DB, since time.Time, want sweep.Full) {
	t.Helper()
	if n := count(t, db, followUps); n != 1 {
		t.Fatalf("%d follow-ups, want one", n)
	}
	var got sweep.Full
	var at string
	var scheduled database.Time
	rig.Scan(t, db, `SELECT args ->> 'tenant_id', args -> 'after' ->> 'due', args -> 'after' ->> 'id', scheduled_at
		FROM river_job WHERE `+followUps, nil, &got.Tenant, &at, &got.After.ID, &scheduled)
	if err := got.After.Due.UnmarshalText([]byte(at)); err != nil || got != want {
		t.Errorf("it goes on with %v, want %v; %v", got, want, err)
	}
	wait := scheduled.Sub(since)
	if slack := time.Since(since); wait < 10*time.Second-10*time.Millisecond || wait > 10*time.Second+slack {
		t.Errorf("it goes on after %v, want 10s", wait)
	}
}

// A tenant whose sweep was full is gone on with after 10 s, from where it was, once however often it is found full; and
// again after that, until it is not full. Between the start and each step there is one job, in the maintenance queue.
//
// contract: S-04
func TestFullSweepGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		first := sweep.Full{Tenant: "acme", After: durable.Cursor{Due: place, ID: "d500"}}
		second := sweep.Full{Tenant: "acme", After: durable.Cursor{Due: database.At(place.Add(time.Second + time.Microsecond)), ID: "d900"}}
		s := &sweeper{
			all: func(int) ([]sweep.Full, error) { return []sweep.Full{first}, errors.New("another tenant failed") },
			tenant: func(n int) (*sweep.Full, error) {
				if n == 1 {
					return &second, nil
				}
				return nil, nil
			},
		}
		j, _ := newJobs(t, db)
		before := time.Now()
		start(t, j, jobs.Work{Sweeper: s})
		ended := afterStart(t, db, s)
		if err := j.SweepSoon(t.Context()); err != nil { // so that a second pass finds it full
			t.Fatal(err)
		}
		until(t, "through", func() bool {
			return s.ended() > ended && count(t, db, isSweep+` AND state IN ('available', 'running')`) == 0
		})
		checkFollowUp(t, db, before, first)
		if n := count(t, db, isSweep+` AND queue <> $1`, durable.MaintenanceQueue); n != 0 {
			t.Errorf("%d sweeps are in other queues", n)
		}

		before = time.Now()
		due(t, db)
		until(t, "gone on", func() bool { return count(t, db, followUps+` AND state = 'scheduled'`) == 1 })
		checkFollowUp(t, db, before, second)
		due(t, db)
		until(t, "at the end", func() bool {
			_, asked, _ := s.seen()
			return len(asked) == 2 && count(t, db, followUps) == 0
		})
		stop(t, j)
		if _, asked, _ := s.seen(); asked[0] != first || asked[1] != second {
			t.Errorf("it went on from %v", asked)
		}
	})
}

// While 100 wake-ups wait, a full sweep adds none, and looks again 10 s later, from the same place. 99 are few enough; jobs
// that are being worked, are scheduled for later or are done do not count.
//
// contract: S-04
func TestFullSweepWaitsForTheBacklog(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for _, c := range []struct {
			waiting int
			sweeps  bool
		}{{99, true}, {100, false}} {
			rig.Exec(t, db, `DELETE FROM river_job`)
			backlog(t, db, c.waiting)
			from := sweep.Full{Tenant: "acme", After: durable.Cursor{Due: place, ID: "d500"}}
			rig.Exec(t, db, `INSERT INTO river_job (args, kind, max_attempts, queue) VALUES (`+binary(db, 1)+`, $2, 1, $3)`,
				`{"tenant_id":"acme","after":{"due":"2026-01-02T03:04:05.000006Z","id":"d500"}}`, sweepKind, durable.MaintenanceQueue)
			s := &sweeper{}
			j, _ := newJobs(t, db)
			before := time.Now()
			start(t, j, jobs.Work{Sweeper: s})
			until(t, "worked", func() bool {
				return count(t, db, isSweep+` AND args ->> 'tenant_id' IS NOT NULL AND state = 'completed'`) == 1
			})
			stop(t, j)
			_, asked, _ := s.seen()
			if c.sweeps {
				if len(asked) != 1 || asked[0] != from || count(t, db, followUps) != 0 {
					t.Errorf("with %d waiting: it swept %v, and %d follow-ups wait", c.waiting, asked, count(t, db, followUps))
				}
				continue
			}
			if len(asked) != 0 {
				t.Errorf("with %d waiting: it swept %v", c.waiting, asked)
			}
			checkFollowUp(t, db, before, from)
		}
	})
}

// backlog inserts wake-ups that nobody works, and ten each of those that do not wait: scheduled, running, completed.
func backlog(t *testing.T, db *database.DB, waiting int) {
	t.Helper()
	for _, c := range []struct {
		n               int
		state, finality string
	}{{waiting, "available", "NULL"}, {10, "scheduled", "NULL"}, {10, "running", "NULL"}, {10, "completed", "CURRENT_TIMESTAMP"}} {
		for range c.n {
			rig.Exec(t, db, `INSERT INTO river_job (args, kind, max_attempts, queue, state, finalized_at, attempted_at, scheduled_at)
				VALUES (`+binary(db, 1)+`, 'loam_event_delivery', 25, 'nobody_works_it', $2, `+c.finality+`, CURRENT_TIMESTAMP, '2030-01-01 00:00:00.000')`,
				"{}", c.state)
		}
	}
}
