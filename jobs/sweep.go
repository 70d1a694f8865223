package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/sweep"
)

const (
	// followUpAfter is when a sweep that was full goes on.
	followUpAfter = 10 * time.Second
	// maxWaiting is how many wake-up jobs may wait for a sweep to add more.
	maxWaiting = 100
)

// sweepArgs is stored in jobs: fields are only added.
type sweepArgs struct {
	// TenantID is set for the going on of one tenant's sweep; empty is all tenants.
	TenantID string `json:"tenant_id,omitempty"`
	// After is where to go on with that tenant.
	After durable.Cursor `json:"after,omitzero"`
	// From is the tenant after which to go on with a pass over all whose time was over.
	From string `json:"from,omitempty"`
	// Soon is set when something asks for a sweep between two periods.
	Soon bool `json:"soon,omitempty"`
}

// Kind implements river.JobArgs.
func (sweepArgs) Kind() string { return sweep.Key }

// Sweeper sweeps tenants.
type Sweeper interface {
	All(ctx context.Context, after string) (sweep.Pass, error)
	Tenant(ctx context.Context, id string, after durable.Cursor) (*sweep.Full, error)
}

func sweepOpts(at time.Time) *river.InsertOpts {
	return &river.InsertOpts{Queue: durable.MaintenanceQueue, MaxAttempts: 1, ScheduledAt: at}
}

func periodicSweep(every time.Duration) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(every), func() (river.JobArgs, *river.InsertOpts) {
		return sweepArgs{}, sweepOpts(time.Time{})
	}, &river.PeriodicJobOpts{ID: sweep.Key, RunOnStart: true})
}

// SweepSoon asks for a sweep of all tenants now, unless one is waiting already.
func (j *Jobs) SweepSoon(ctx context.Context) error {
	waiting, err := j.list(ctx, sweep.Key, 1, "args ->> 'soon' IS NOT NULL", nil, rivertype.JobStateAvailable)
	if err != nil || waiting > 0 {
		return err
	}
	if _, err := j.insert.Insert(ctx, sweepArgs{Soon: true}, sweepOpts(time.Time{})); err != nil {
		return fmt.Errorf("ask for a sweep: %w", database.Explain(err))
	}
	return nil
}

// list counts the jobs of a kind in these states that meet a condition, up to max.
func (j *Jobs) list(ctx context.Context, kind string, max int, where string, args river.NamedArgs, states ...rivertype.JobState) (int, error) {
	p := river.NewJobListParams().Kinds(kind).States(states...).First(max)
	if where != "" {
		p = p.Where(where, args)
	}
	res, err := j.insert.JobList(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("list jobs: %w", database.Explain(err))
	}
	return len(res.Jobs), nil
}

// LastSweep is when a sweep of all tenants last ended, in any process; zero if River keeps none.
func (j *Jobs) LastSweep(ctx context.Context) (time.Time, error) { return j.last(ctx, sweep.Key) }

// last is when a job of a kind was last completed; zero if River keeps none.
func (j *Jobs) last(ctx context.Context, kind string) (time.Time, error) {
	res, err := j.insert.JobList(ctx, river.NewJobListParams().Kinds(kind).States(rivertype.JobStateCompleted).
		OrderBy(river.JobListOrderByFinalizedAt, river.SortOrderDesc).First(1))
	if err != nil {
		return time.Time{}, fmt.Errorf("find the last job of %s: %w", kind, database.Explain(err))
	}
	if len(res.Jobs) == 0 || res.Jobs[0].FinalizedAt == nil {
		return time.Time{}, nil
	}
	return *res.Jobs[0].FinalizedAt, nil
}

type sweepWorker struct {
	river.WorkerDefaults[sweepArgs]
	jobs    *Jobs
	sweeper Sweeper
	outage  outage.Log

	mu         sync.Mutex
	start, end time.Time // of the last pass over all tenants, on the monotonic clock
}

// Work implements river.Worker. What fails is logged and has its turn in the next period: River does not try it again.
func (w *sweepWorker) Work(ctx context.Context, job *river.Job[sweepArgs]) error {
	err := w.sweep(ctx, job)
	if err != nil {
		w.outage.Failed(ctx, w.jobs.logger, sweeping, err)
	} else {
		w.outage.Succeeded(ctx, w.jobs.logger, sweeping)
	}
	return nil
}

const sweeping = "sweeping"

func (w *sweepWorker) sweep(ctx context.Context, job *river.Job[sweepArgs]) error {
	if job.Args.TenantID != "" {
		return w.goOn(ctx, job.Args)
	}
	if job.Args.From == "" && !w.begin(job) {
		return nil
	}
	defer w.finish()
	pass, err := w.sweeper.All(ctx, job.Args.From)
	errs := []error{err}
	for _, f := range pass.Full {
		errs = append(errs, w.followUp(ctx, f))
	}
	if pass.Next != "" {
		_, err := w.jobs.insert.Insert(ctx, sweepArgs{From: pass.Next}, sweepOpts(time.Time{}))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// begin reports whether a pass is to be made for the job: not if one has begun since it was inserted, and not if its period
// ended while one was going on. So passes that take longer than a period do not pile up. It compares ages, which a step of
// the clock does not make wrong for longer than the step is ago.
func (w *sweepWorker) begin(job *river.Job[sweepArgs]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	age := now.Sub(job.CreatedAt) - time.Millisecond // the time it was inserted at is cut to a millisecond
	within := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) < age }
	if within(w.start) || !job.Args.Soon && within(w.end) {
		return false
	}
	w.start = now
	return true
}

func (w *sweepWorker) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = time.Now()
}

// goOn sweeps the next rows of a tenant that had more, unless enough wake-ups wait already.
func (w *sweepWorker) goOn(ctx context.Context, args sweepArgs) error {
	waiting, err := w.jobs.list(ctx, wakeKind, maxWaiting, "", nil, rivertype.JobStateAvailable)
	if err != nil {
		return err
	}
	if waiting >= maxWaiting {
		return w.followUp(ctx, sweep.Full{Tenant: args.TenantID, After: args.After})
	}
	full, err := w.sweeper.Tenant(ctx, args.TenantID, args.After)
	if full != nil {
		err = errors.Join(err, w.followUp(ctx, *full))
	}
	return err
}

// followUp lets a tenant's sweep go on later. There is at most one for a tenant.
func (w *sweepWorker) followUp(ctx context.Context, f sweep.Full) error {
	n, err := w.jobs.list(ctx, sweep.Key, 1, "args ->> 'tenant_id' = @tenant", river.NamedArgs{"tenant": f.Tenant},
		rivertype.JobStateAvailable, rivertype.JobStateScheduled)
	if err != nil || n > 0 {
		return err
	}
	_, err = w.jobs.insert.Insert(ctx, sweepArgs{TenantID: f.Tenant, After: f.After}, sweepOpts(time.Now().Add(followUpAfter)))
	return err
}
