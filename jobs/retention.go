package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/outage"
)

// pruneKind is stored in jobs: it never changes.
const pruneKind = "loam_retention"

const (
	// PruneEvery is how often what is older than it is kept is deleted.
	PruneEvery = time.Hour
	// pruneAfter is when that begins after it was asked for: a process that starts has better things to do.
	pruneAfter = time.Minute
)

// pruneArgs is stored in jobs: fields are only added.
type pruneArgs struct{}

// Kind implements river.JobArgs.
func (pruneArgs) Kind() string { return pruneKind }

// PruneSoon asks for pruning in a minute, unless it was asked for already, or was done within most of a period. Every process
// asks once in a period and at its start, and one of them does it. River's periodic jobs would not do: its leader inserts
// them, which can be a client of the application's own that does not have ours.
func (j *Jobs) PruneSoon(ctx context.Context) error {
	waiting, err := j.list(ctx, pruneKind, 1, "", nil, rivertype.JobStateAvailable, rivertype.JobStateScheduled, rivertype.JobStateRunning)
	if err != nil || waiting > 0 {
		return err
	}
	last, err := j.last(ctx, pruneKind)
	if err != nil || time.Since(last) < PruneEvery*3/4 {
		return err
	}
	if _, err := j.insert.Insert(ctx, pruneArgs{}, sweepOpts(time.Now().Add(pruneAfter))); err != nil {
		return fmt.Errorf("ask for pruning: %w", database.Explain(err))
	}
	return nil
}

type pruneWorker struct {
	river.WorkerDefaults[pruneArgs]
	jobs   *Jobs
	prune  func(ctx context.Context) (full bool, err error)
	outage outage.Log
}

const pruning = "pruning what is older than it is kept"

// Work implements river.Worker. What fails is logged and has its turn in the next period: River does not try it again.
func (w *pruneWorker) Work(ctx context.Context, _ *river.Job[pruneArgs]) error {
	w.report(ctx, w.run(ctx))
	return nil
}

// run prunes. What was full goes on at once, behind the sweeps that wait.
func (w *pruneWorker) run(ctx context.Context) error {
	full, err := w.prune(ctx)
	if full && ctx.Err() == nil {
		_, insertErr := w.jobs.insert.Insert(ctx, pruneArgs{}, sweepOpts(time.Time{}))
		err = errors.Join(err, insertErr)
	}
	return err
}

func (w *pruneWorker) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		w.outage.Succeeded(ctx, w.jobs.logger, pruning)
	case ctx.Err() == nil: // else the process stops
		w.outage.Failed(ctx, w.jobs.logger, pruning, err)
	}
}
