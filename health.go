package loam

import (
	"context"
	"fmt"
	"time"

	"github.com/openloam/loam/health"
	"github.com/openloam/loam/migrations"
	"github.com/openloam/loam/tenant"
)

// healthLimit is the time limit of a report: a database that does not answer is a finding.
const healthLimit = 5 * time.Second

// Health reports how the engine is, and, for the tenant in ctx if there is one, what is due. It never fails: what cannot be
// read is a problem in the report.
func (e *Engine) Health(ctx context.Context) health.Report {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	r := health.Report{
		At: e.cfg.Now().UTC(), Live: true, SweepEvery: e.cfg.SweepEvery,
		ClockDifference: time.Duration(e.clock.difference.Load()), MaxClockSkew: e.cfg.MaxClockSkew,
	}
	problem := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	pending, err := migrations.Pending(ctx, e.cfg.DB)
	switch {
	case err != nil:
		problem("The database does not answer: %v. Nothing can be published or delivered.", err)
		return r
	case len(pending) > 0:
		r.MigrationsPending = len(pending)
		problem("%d migrations are pending. Run loam migrate.", len(pending))
		return r
	}
	r.Ready = true
	if e.clock.off.Load() {
		r.Ready = false
		problem("The clock of this process is off by %v, and %v is allowed. It publishes, but delivers nothing.",
			r.ClockDifference.Round(time.Millisecond), r.MaxClockSkew)
	}
	if state(e.state.Load()) == stopped {
		r.Ready = false
		problem("The engine was stopped. It delivers nothing.")
	}
	if r.LastSweep, err = e.jobs.LastSweep(ctx); err != nil {
		problem("The last sweep cannot be read: %v.", err)
	} else if late := r.At.Sub(r.LastSweep); !r.LastSweep.IsZero() && late > 3*e.cfg.SweepEvery {
		problem("No sweep for %v; one is due every %v. What is redelivered may wait.", late.Round(time.Second), e.cfg.SweepEvery)
	}
	e.dueNow(ctx, &r, problem)
	return r
}

// dueNow adds what the tenant in ctx has due.
func (e *Engine) dueNow(ctx context.Context, r *health.Report, problem func(format string, args ...any)) {
	if tenant.From(ctx) == "" {
		return
	}
	n, oldest, err := e.deliveries.Backlog(ctx, r.At)
	if err != nil {
		problem("The backlog cannot be read: %v.", err)
		return
	}
	r.DueNow = n
	if n == 0 {
		return
	}
	r.OldestDue = r.At.Sub(oldest)
	if r.OldestDue > 2*e.cfg.SweepEvery {
		problem("The oldest due delivery has waited for %v; the sweep finds one within %v. The workers are busy, or none runs.",
			r.OldestDue.Round(time.Second), e.cfg.SweepEvery)
	}
}
