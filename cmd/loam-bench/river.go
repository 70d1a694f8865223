package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
)

// plainRiver is what all are compared with.
const plainRiver = "river"

// benchArgs are a job's: the payload of an event.
type benchArgs struct {
	N    int64  `json:"n"`
	Text string `json:"text"`
}

// Kind implements river.JobArgs.
func (benchArgs) Kind() string { return "bench" }

// riverContender is River without Loam.
type riverContender struct {
	setup
	client *river.Client[*sql.Tx]
}

func startRiver(ctx context.Context, s setup) (contender, error) {
	engine, err := loam.New(loam.Config{DB: s.db, Logger: s.logger}) // for River's tables
	if err != nil {
		return nil, err
	}
	if err := engine.Migrate(ctx); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, river.WorkFunc(func(context.Context, *river.Job[benchArgs]) error {
		s.handled.Add(1)
		return nil
	})); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverDriver(s.db), &river.Config{
		Logger: s.logger, Workers: workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		FetchCooldown: 5 * time.Millisecond, // River's default of 100 ms allows 1,000 jobs a second
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return riverContender{s, client}, nil
}

func riverDriver(db *database.DB) riverdriver.Driver[*sql.Tx] {
	if db.Dialect() == database.PostgreSQL {
		return riverdatabasesql.NewWithPgxListener(db.Write(), db.Listen())
	}
	return riversqlite.New(db.Write())
}

func (c riverContender) publish(ctx context.Context, n int64) error {
	tx, err := c.db.Write().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	jobs := make([]river.InsertManyParams, c.subscribers)
	for i := range jobs {
		jobs[i].Args = benchArgs{N: n, Text: filler}
	}
	if _, err := c.client.InsertManyTx(ctx, tx, jobs); err != nil {
		return err
	}
	return tx.Commit()
}

func (c riverContender) unfinished(ctx context.Context) (int, error) {
	return count(ctx, c.db, `SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'retryable')`)
}

// copyJobs copies River's jobs that are done.
const copyJobs = `INSERT INTO river_job (state, attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at, priority,
		args, attempted_by, kind, metadata, queue, tags)
	SELECT state, attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at, priority,
		args, attempted_by, kind, metadata, queue, tags FROM river_job CROSS JOIN c WHERE state = 'completed'`

func (riverContender) copies() []string { return []string{copyJobs} }

func (c riverContender) verify(ctx context.Context, deliveries int) error {
	all, err := count(ctx, c.db, `SELECT count(*) FROM river_job`)
	if err != nil {
		return err
	}
	good, err := count(ctx, c.db, `SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = 1`)
	return errors.Join(err, complete(deliveries, all, good))
}

func (c riverContender) stop(ctx context.Context) error { return c.client.Stop(ctx) }
