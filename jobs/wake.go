package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
	// TenantIDs, if set, has the tenant of each delivery; TenantID is empty then.
	TenantIDs []string `json:"tenant_ids,omitempty"`
}

// wakeups are the job's wake-ups, one for each tenant; none if it names nothing.
func (a wakeArgs) wakeups(queue string) []durable.Wakeup {
	w := durable.Wakeup{Tenant: a.TenantID, IDs: a.DeliveryIDs, Tenants: a.TenantIDs, Queue: queue}
	if len(w.IDs) == 0 || w.Tenants == nil && w.Tenant == "" || w.Tenants != nil && len(w.Tenants) != len(w.IDs) {
		return nil
	}
	return w.ByTenant()
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

// Work implements river.Worker. A job without a tenant or without ids is a no-op, as is one whose rows are gone. Tenants do
// not wait for each other.
func (w *wakeWorker) Work(ctx context.Context, job *river.Job[wakeArgs]) error {
	wakeups := job.Args.wakeups(job.Queue)
	errs := make([]error, len(wakeups))
	var all sync.WaitGroup
	for i, u := range wakeups {
		if i == len(wakeups)-1 { // mostly there is one
			errs[i] = w.deliver(ctx, u)
			break
		}
		all.Go(func() { errs[i] = w.deliver(ctx, u) })
	}
	all.Wait()
	err := errors.Join(errs...)
	switch {
	case errors.Is(err, durable.ErrStopping):
		return river.JobSnooze(0) // for another process, or this one's next start
	case errors.Is(err, durable.ErrClock):
		return river.JobSnooze(clockSnooze)
	case err != nil && ctx.Err() != nil:
		return river.JobSnooze(time.Second) // it waited too long for a slot
	case err != nil:
		w.outage.Failed(ctx, w.logger, delivering, err, slog.String("tenant", wakeups[0].Tenant))
		return err
	case len(wakeups) > 0:
		w.outage.Succeeded(ctx, w.logger, delivering)
	}
	return nil
}

func (w *wakeWorker) deliver(ctx context.Context, u durable.Wakeup) error {
	ctx = tenant.With(ctx, u.Tenant)
	if u.Queue == durable.SuspectQueue && len(u.IDs) == 1 {
		return w.deliveries.DeliverAlone(ctx, u.IDs[0])
	}
	return w.deliveries.Deliver(ctx, u.IDs...)
}

// NextRetry implements river.Worker: 1 s doubling to a minute. Only a failing database comes here.
func (w *wakeWorker) NextRetry(job *river.Job[wakeArgs]) time.Time {
	return time.Now().Add(min(time.Second<<min(len(job.Errors), 6), time.Minute))
}
