package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/quietlog"
)

const (
	// fetchCooldown is River's least time between two fetches. It caps a queue at workers / cooldown: River's default of
	// 100 ms gave 1,000 jobs a second with 100 workers. It also limits the notices of a client that only inserts.
	fetchCooldown = 5 * time.Millisecond
	// logPeriod is how often one message of River's gets through.
	logPeriod = time.Minute
	// keepCompleted is how long River keeps a job that is done; the row is the record.
	keepCompleted = time.Hour
)

// Jobs inserts jobs and, once started, works them. It is safe for use by several goroutines.
type Jobs struct {
	db     *database.DB
	logger *slog.Logger // ours
	quiet  *slog.Logger // River's
	insert *river.Client[*sql.Tx]
	work   *river.Client[*sql.Tx]
	queues map[string]*wakeQueue
	nudges atomic.Pointer[nudges] // of work, once it is started; nil on SQLite
}

var _ durable.Enqueuer = (*Jobs)(nil)

// New makes a Jobs that can insert. It does no I/O and starts no goroutine.
func New(db *database.DB, logger *slog.Logger) (*Jobs, error) {
	j := &Jobs{db: db, logger: logger, quiet: slog.New(quietlog.New(logger.Handler(), slog.LevelWarn, logPeriod))}
	var err error
	j.insert, err = river.NewClient(driver(db), &river.Config{Logger: j.quiet, FetchCooldown: fetchCooldown})
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return j, nil
}

// driver is River's for the kind of database. On PostgreSQL it listens for notices, on a connection of its own.
func driver(db *database.DB) riverdriver.Driver[*sql.Tx] {
	if db.Dialect() == database.PostgreSQL {
		return riverdatabasesql.NewWithPgxListener(db.Write(), db.Listen())
	}
	return riversqlite.New(db.Write())
}

// Enqueue inserts a job for each wake-up, in tx.
func (j *Jobs) Enqueue(ctx context.Context, tx *sql.Tx, wakeups []durable.Wakeup) error {
	if len(wakeups) == 0 {
		return nil
	}
	params := make([]river.InsertManyParams, len(wakeups))
	for i, w := range wakeups {
		if !w.At.After(time.Now()) {
			w.At = time.Time{} // a job with a time in the past would wait for River's scheduler
		}
		params[i] = river.InsertManyParams{
			Args:       wakeArgs{TenantID: w.Tenant, DeliveryIDs: w.IDs, TenantIDs: w.Tenants},
			InsertOpts: &river.InsertOpts{Queue: w.Queue, ScheduledAt: w.At},
		}
	}
	if _, err := j.insert.InsertManyTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert %d wake-ups: %w", len(wakeups), err)
	}
	if n := j.nudges.Load(); n != nil {
		j.db.AfterCommit(ctx, func() {
			for _, p := range params {
				if p.InsertOpts.ScheduledAt.IsZero() {
					n.add(p.InsertOpts.Queue)
				}
			}
		})
	}
	return nil
}

// Work is what Start needs.
type Work struct {
	Deliveries Deliverer
	Sweeper    Sweeper
	// Prune deletes what is older than it is kept. It returns within seconds; full says that there may be more.
	Prune func(ctx context.Context) (full bool, err error)
	// Queues are the River queues to work, beside those that Loam has itself.
	Queues []string
	// Concurrency is how many jobs of a queue are worked at once.
	Concurrency int
	// SweepEvery is the interval of the sweep.
	SweepEvery time.Duration
	// Paused starts without fetching wake-ups; see SetPaused.
	Paused bool
	// LongestRun is how long a delivery can take until it has returned or is given up as stuck.
	LongestRun time.Duration
}

// slack is what a job may take beside its longest run: waiting for slots, the claim, the outcome.
const slack = time.Minute

// Start begins to work jobs and asks for a sweep. ctx is for starting only.
func (j *Jobs) Start(ctx context.Context, w Work) error {
	workers := river.NewWorkers()
	sweeps := &sweepWorker{jobs: j, sweeper: w.Sweeper}
	if err := errors.Join(
		river.AddWorkerSafely(workers, &wakeWorker{deliveries: w.Deliveries, logger: j.logger}),
		river.AddWorkerSafely(workers, sweeps),
		river.AddWorkerSafely(workers, &pruneWorker{jobs: j, prune: w.Prune}),
	); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	j.queues = wakeQueues(w)
	queues := map[string]river.QueueConfig{durable.MaintenanceQueue: {MaxWorkers: 1}}
	for name, q := range j.queues {
		if q.state == worked {
			queues[name] = q.config
		}
	}
	limit := max(w.LongestRun+slack, w.SweepEvery)
	driver, heard := driver(j.db), (*nudges)(nil)
	if j.db.Dialect() == database.PostgreSQL {
		heard = newNudges()
		driver = nudgedDriver{driver, heard}
	}
	client, err := river.NewClient(driver, &river.Config{
		Logger: j.quiet, FetchCooldown: fetchCooldown,
		Queues: queues, Workers: workers,
		PeriodicJobs:                []*river.PeriodicJob{periodicSweep(w.SweepEvery)},
		JobTimeout:                  limit,
		RescueStuckJobsAfter:        limit + slack,
		CompletedJobRetentionPeriod: keepCompleted,
		ReindexerSchedule:           river.NeverSchedule(), // a REINDEX locks SQLite's file
	})
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("jobs: start River: %w", database.Explain(err))
	}
	j.work = client
	j.nudges.Store(heard)
	return j.SweepSoon(ctx)
}

// Stop fetches no more jobs and waits for those that are worked. When ctx ends first, it returns the context's error, and
// may be called again.
func (j *Jobs) Stop(ctx context.Context) error {
	if j.work == nil {
		return nil
	}
	return j.work.Stop(ctx)
}

// Abort is Stop, but ends the contexts of the jobs.
func (j *Jobs) Abort(ctx context.Context) error {
	if j.work == nil {
		return nil
	}
	return j.work.StopAndCancel(ctx)
}
