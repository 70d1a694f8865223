package jobs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/jobs"
)

const isPrune = `kind = 'loam_retention'`

func ask(t *testing.T, j *jobs.Jobs) {
	t.Helper()
	if err := j.PruneSoon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// hurry makes the prune that was asked for one that is to be done now.
func hurry(t *testing.T, db *database.DB) {
	t.Helper()
	rig.Exec(t, db, `UPDATE river_job SET state = 'available', scheduled_at = created_at WHERE `+isPrune+` AND state = 'scheduled'`)
}

// A prune that is asked for comes a minute later, in the maintenance queue. However many processes ask, it is one; and none
// while the last was done within most of an hour.
//
// contract: S-06
func TestPruneSoon(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, _ := newJobs(t, db)
		other, _ := newJobs(t, db)
		want := func(when string, all int) {
			t.Helper()
			ask(t, j)
			ask(t, other)
			if n := count(t, db, isPrune); n != all {
				t.Fatalf("%s: %d jobs, want %d", when, n, all)
			}
		}
		before := time.Now()
		want("at first", 1)
		var at database.Time
		var queue, state string
		rig.Scan(t, db, `SELECT queue, state, scheduled_at FROM river_job WHERE `+isPrune, nil, &queue, &state, &at)
		if wait := at.Sub(before); queue != durable.MaintenanceQueue || state != "scheduled" || wait < 59*time.Second || wait > 90*time.Second {
			t.Errorf("a %s job in %s, after %v", state, queue, wait)
		}
		for _, state := range []string{"available", "running"} {
			rig.Exec(t, db, `UPDATE river_job SET state = $1 WHERE `+isPrune, state)
			want("while it is "+state, 1)
		}
		for _, c := range []struct {
			ago time.Duration
			all int
		}{{time.Minute, 1}, {44 * time.Minute, 1}, {46 * time.Minute, 2}} {
			finalized := time.Now().Add(-c.ago).UTC().Format("2006-01-02 15:04:05.000")
			if db.Dialect() == database.PostgreSQL {
				finalized += "+00"
			}
			rig.Exec(t, db, `UPDATE river_job SET state = 'completed', finalized_at = $1 WHERE `+isPrune, finalized)
			want("done "+c.ago.String()+" ago", c.all)
		}
	})
}

// What is full goes on at once, as often as it takes; what is not waits to be asked.
//
// contract: S-06
func TestAFullPruneGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, _ := newJobs(t, db)
		var calls atomic.Int64
		start(t, j, jobs.Work{Prune: func(context.Context) (bool, error) { return calls.Add(1) < 4, nil }})
		ask(t, j)
		hurry(t, db)
		until(t, "through", func() bool { return count(t, db, isPrune+` AND state = 'completed'`) == 4 })
		stop(t, j)
		if n := count(t, db, isPrune); n != 4 || calls.Load() != 4 {
			t.Errorf("%d jobs, %d calls", n, calls.Load())
		}
	})
}

// An error is logged once while it lasts, and its end; neither it nor a panic stops the worker, and nothing is tried again at once.
//
// contract: S-06
// scenario: B200
func TestAPruneThatFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, logs := newJobs(t, db)
		var calls atomic.Int64
		d := &deliverer{}
		start(t, j, jobs.Work{Deliveries: d, Prune: func(context.Context) (bool, error) {
			switch calls.Add(1) {
			case 3:
				panic("a broken table")
			case 4:
				return false, nil
			}
			return false, errors.New("the ledger is locked")
		}})
		for i := range 4 {
			rig.Exec(t, db, `UPDATE river_job SET finalized_at = NULL, state = 'pending' WHERE `+isPrune)
			ask(t, j)
			hurry(t, db)
			until(t, "done", func() bool {
				return calls.Load() == int64(i+1) && count(t, db, isPrune+` AND state IN ('available', 'running')`) == 0
			})
		}
		enqueue(t, db, j, durable.Wakeup{Tenant: "acme", IDs: []string{"d1"}, Queue: durable.DefaultQueue})
		until(t, "delivered", func() bool { return len(d.seen()) == 1 })
		stop(t, j)
		if n := len(logs.Lines("ERROR", "the ledger is locked")); n != 1 {
			t.Errorf("%d lines say what fails: %q", n, logs.Lines())
		}
		if len(logs.Lines("INFO", "succeeding again", "pruning")) != 1 || len(logs.Lines("a broken table")) == 0 {
			t.Errorf("logged: %q", logs.Lines())
		}
	})
}

// A prune that is cut short by the stop is no failure, and does not go on in another job.
func TestAPruneIsStopped(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, logs := newJobs(t, db)
		begun := make(chan struct{})
		start(t, j, jobs.Work{Prune: func(ctx context.Context) (bool, error) {
			close(begun)
			<-ctx.Done()
			return true, ctx.Err()
		}})
		ask(t, j)
		hurry(t, db)
		<-begun
		if err := j.Abort(context.Background()); err != nil {
			t.Error(err)
		}
		if n := count(t, db, isPrune); n != 1 || len(logs.Lines("ERROR")) > 0 {
			t.Errorf("%d jobs; logged: %q", n, logs.Lines("ERROR"))
		}
	})
}
