package loam

import (
	"context"
	"fmt"
	"time"

	"github.com/openloam/loam/health"
	"github.com/openloam/loam/migrations"
	"github.com/openloam/loam/tenant"
)

const readingHealth = "reading the state for the health report"

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
	readable := true
	unread := func(sentence string, err error) { // why is for the log: the report is for everybody
		readable = false
		problem("%s", sentence)
		e.unread.Failed(ctx, e.cfg.Logger, readingHealth, err)
	}
	pending, err := migrations.Pending(ctx, e.cfg.DB)
	switch {
	case err != nil:
		unread("The database does not answer. Nothing can be published or delivered.", err)
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
		unread("The last sweep cannot be read.", err)
	} else if late := r.At.Sub(r.LastSweep); !r.LastSweep.IsZero() && late > 3*e.cfg.SweepEvery {
		problem("No sweep for %v; one is due every %v. What is redelivered may wait.", late.Round(time.Second), e.cfg.SweepEvery)
	}
	if err := e.queueNow(ctx, &r, problem); err != nil {
		unread("The state of event_queue cannot be read.", err)
	}
	if tenant.From(ctx) != "" {
		if err := e.dueNow(ctx, &r, problem); err != nil {
			unread("The backlog cannot be read.", err)
		}
	}
	if readable {
		e.unread.Succeeded(ctx, e.cfg.Logger, readingHealth)
	}
	return r
}

// queueLate is how long a row of event_queue may wait before it is a problem.
const queueLate = time.Minute

// queueNow adds what waits in event_queue.
func (e *Engine) queueNow(ctx context.Context, r *health.Report, problem func(format string, args ...any)) error {
	s, err := e.queue.State(ctx)
	if err != nil {
		return err
	}
	r.QueueWaiting, r.QueueDeadLettered = s.Waiting, s.DeadLettered
	if !s.Oldest.IsZero() {
		r.QueueOldest = max(0, r.At.Sub(s.Oldest))
	}
	if r.BusAway = e.busAway(r.At); r.BusAway > 0 {
		problem("The bus has not been reached for %v. What is published waits in event_queue, and what others sent in the bus; the log says why.",
			r.BusAway.Round(time.Second))
	}
	if r.QueueOldest > queueLate {
		problem("The oldest row of event_queue has waited for %v; a relay takes one within a second. Relays are behind, or none runs.",
			r.QueueOldest.Round(time.Second))
	}
	if s.DeadLettered > 0 {
		problem("%d rows of event_queue are dead_lettered: their events reach nobody until somebody mends and requeues them.", s.DeadLettered)
	}
	return nil
}

// busAway is how long the bus has been away, for the relay or the consumer of this process; 0 if it is not.
func (e *Engine) busAway(now time.Time) time.Duration {
	if e.cfg.Bus == nil {
		return 0
	}
	var longest time.Duration
	for _, since := range []time.Time{e.queue.Away(), e.cfg.Bus.Away()} {
		if !since.IsZero() {
			longest = max(longest, 1, now.Sub(since))
		}
	}
	return longest
}

// dueNow adds what the tenant in ctx has due.
func (e *Engine) dueNow(ctx context.Context, r *health.Report, problem func(format string, args ...any)) error {
	n, oldest, err := e.deliveries.Backlog(ctx, r.At)
	if err != nil || n == 0 {
		return err
	}
	r.DueNow = n
	r.OldestDue = r.At.Sub(oldest)
	if r.OldestDue > 2*e.cfg.SweepEvery {
		problem("The oldest due delivery has waited for %v; the sweep finds one within %v. The workers are busy, or none runs.",
			r.OldestDue.Round(time.Second), e.cfg.SweepEvery)
	}
	return nil
}
