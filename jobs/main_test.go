package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newJobs makes a Jobs over a migrated database whose log can be read.
func newJobs(t *testing.T, db *database.DB) (*jobs.Jobs, *rig.Logs) {
	t.Helper()
	logs := &rig.Logs{}
	j, err := jobs.New(db, slog.New(logs))
	if err != nil {
		t.Fatal(err)
	}
	return j, logs
}

// start begins to work, until the end of the test at the latest. What w leaves out does nothing, or happens in an hour.
func start(t *testing.T, j *jobs.Jobs, w jobs.Work) {
	t.Helper()
	if w.Deliveries == nil {
		w.Deliveries = &deliverer{}
	}
	if w.Sweeper == nil {
		w.Sweeper = &sweeper{}
	}
	if w.SweepEvery == 0 {
		w.SweepEvery = time.Hour
	}
	w.Concurrency, w.LongestRun = 10, time.Minute
	if err := j.Start(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, j) })
}

func stop(t *testing.T, j *jobs.Jobs) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := j.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// count counts River's jobs that meet a condition.
func count(t *testing.T, db *database.DB, where string, args ...any) int {
	t.Helper()
	var n int
	rig.Scan(t, db, `SELECT count(*) FROM river_job WHERE `+where, args, &n)
	return n
}

// binary is parameter n, a JSON text, as River's columns hold it.
func binary(db *database.DB, n int) string {
	if db.Dialect() == database.PostgreSQL {
		return fmt.Sprintf("CAST($%d AS jsonb)", n)
	}
	return fmt.Sprintf("jsonb($%d)", n)
}

// same is the condition that the JSON in column is that of parameter n.
func same(db *database.DB, column string, n int) string {
	if db.Dialect() == database.PostgreSQL {
		return column + " = " + binary(db, n)
	}
	return fmt.Sprintf("json(%s) = json($%d)", column, n)
}

// until waits for ok, and fails the test if it does not come.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("after 60s: still not " + what)
		}
	}
}
