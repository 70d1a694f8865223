package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// errScripted is what a handler fails with.
var errScripted = errors.New("as the script says")

func (c *child) register(reg *durable.Registry) {
	var runs atomic.Int64
	for _, s := range subscribers {
		reg.RegisterFunc(s.key, s.pattern, func(ctx context.Context, e events.Event) (err error) {
			run := runs.Add(1)
			c.diary.add("s", run, e.TenantID, e.ID, s.key)
			stop := context.AfterFunc(ctx, func() { c.diary.add("c", run, causeWord(context.Cause(ctx))) })
			result := string(exits)
			defer func() { // also of a panic and of Goexit
				stop()
				c.diary.add("e", run, result)
			}()
			do := c.work(ctx, s, e)
			result = string(do)
			switch do {
			case fails:
				return errScripted
			case panics:
				panic(errScripted)
			case exits:
				runtime.Goexit()
			case retries:
				return durable.RetryAfter(100*time.Millisecond, errScripted)
			case snoozes:
				return durable.Snooze(time.Second)
			case parks:
				return durable.Park(errScripted)
			case cutShort:
				return ctx.Err()
			case succeeds:
			}
			return nil
		}, s.options()...)
	}
}

// work takes its time and says how the run ends. How many failures there were is in the row, which only a holder of the
// claim changes: so each run knows where in its script it is, whatever became of the runs before.
func (c *child) work(ctx context.Context, s subscriber, e events.Event) behaviour {
	id, err := uuid.Parse(e.ID)
	if err != nil {
		c.diary.add("v", "an event with the id", e.ID)
		return cutShort
	}
	if p := plan(id); p.tenant != e.TenantID || p.name != e.Name || e.Payload["order"] == nil {
		c.diary.add("v", "event", e.ID, "reached a handler as another:", e.TenantID, e.Name)
	}
	if s.stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	var attempts, runs, unfinished int
	err = c.db.Read().QueryRowContext(ctx, `SELECT attempts, runs, unfinished FROM event_deliveries
		WHERE tenant_id = $1 AND event_id = $2 AND subscriber_key = $3`, e.TenantID, e.ID, s.key).Scan(&attempts, &runs, &unfinished)
	if err != nil {
		if ctx.Err() == nil {
			return snoozes // spends nothing
		}
		return cutShort
	}
	took := s.duration(rand.Uint64()) //nolint:gosec // nothing secret about it
	if unfinished == 2 {              // more than that are run one at a time
		took += afterTakeover(rand.Uint64()) //nolint:gosec // likewise
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return scriptOf(id, s.key).next(attempts, runs)
	case <-ctx.Done():
		return cutShort
	}
}

func causeWord(cause error) string {
	switch {
	case errors.Is(cause, durable.ErrClaimLost):
		return "lost"
	case errors.Is(cause, durable.ErrShutdown):
		return "shutdown"
	case errors.Is(cause, durable.ErrTimeout):
		return "timeout"
	}
	return "end"
}
