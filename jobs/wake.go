package jobs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/tenant"
)

// wakeKind is stored in jobs: it never changes.
const wakeKind = "loam_event_delivery"

// wakeArgs is stored in jobs: fields are only added.
type wakeArgs struct {
	TenantID    string   `json:"tenant_id"`
	DeliveryIDs []string `json:"delivery_ids"`
}

// Kind implements river.JobArgs.
func (wakeArgs) Kind() string { return wakeKind }

// clockSnooze is how long a job waits that a process with a wrong clock has fetched before its queues were taken from it.
const clockSnooze = 5 * time.Second

// Deliverer delivers rows of the tenant in the context.
type Deliverer interface {
	Deliver(ctx context.Context, ids ...string) error
	DeliverAlone(ctx context.Context, id string) error
}

type wakeWorker struct {
	river.WorkerDefaults[wakeArgs]
	deliveries Deliverer
	logger     *slog.Logger
	outage     outage.Log
}

const delivering = "reading and claiming deliveries"

// Work implements river.Worker. A job without a tenant or without ids is a no-op, as is one whose rows are gone.
func (w *wakeWorker) Work(ctx context.Context, job *river.Job[wakeArgs]) error {
	if job.Args.TenantID == "" || len(job.Args.DeliveryIDs) == 0 {
		return nil
	}
	ctx = tenant.With(ctx, job.Args.TenantID)
	var err error
	if job.Queue == durable.SuspectQueue && len(job.Args.DeliveryIDs) == 1 {
		err = w.deliveries.DeliverAlone(ctx, job.Args.DeliveryIDs[0])
	} else {
		err = w.deliveries.Deliver(ctx, job.Args.DeliveryIDs...)
	}
	switch {
	case errors.Is(err, durable.ErrStopping):
		return river.JobSnooze(0) // for another process, or this one's next start
	case errors.Is(err, durable.ErrClock):
		return river.JobSnooze(clockSnooze)
	case err != nil && ctx.Err() != nil:
		return river.JobSnooze(time.Second) // it waited too long for a slot
	case err != nil:
		w.outage.Failed(ctx, w.logger, delivering, err, slog.String("tenant", job.Args.TenantID))
		return err
	}
	w.outage.Succeeded(ctx, w.logger, delivering)
	return nil
}

// NextRetry implements river.Worker: 1 s doubling to a minute. Only a failing database comes here.
func (w *wakeWorker) NextRetry(job *river.Job[wakeArgs]) time.Time {
	return time.Now().Add(min(time.Second<<min(len(job.Errors), 6), time.Minute))
}
