package main

import (
	"context"
	"database/sql"
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
	for _, s := range withCrowd(c.Crowd) {
		opts := s.options(c.db.Dialect())
		if s.transactional {
			reg.RegisterTx(s.key, s.pattern, func(ctx context.Context, tx *sql.Tx, e events.Event) error {
				return c.handle(ctx, s, e, runs.Add(1), tx)
			}, opts...)
			continue
		}
		reg.RegisterFunc(s.key, s.pattern, func(ctx context.Context, e events.Event) error {
			return c.handle(ctx, s, e, runs.Add(1), nil)
		}, opts...)
	}
}

// handle is a run. tx is the transaction of one that has one.
func (c *child) handle(ctx context.Context, s subscriber, e events.Event, run int64, tx *sql.Tx) error {
	c.diary.add("s", run, e.TenantID, e.ID, s.key)
	stop := context.AfterFunc(ctx, func() { c.diary.add("c", run, causeWord(context.Cause(ctx))) })
	result := string(exits)
	defer func() { // also of a panic and of Goexit
		stop()
		c.diary.add("e", run, result)
	}()
	do, err := c.work(ctx, s, e, tx)
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
	case undo:
		return err
	case cutShort:
		return ctx.Err()
	case succeeds:
	}
	return nil
}

// work takes its time and says how the run ends. How many failures there were is in the row, which only a holder of the
// claim changes: so each run knows where in its script it is, whatever became of the runs before.
func (c *child) work(ctx context.Context, s subscriber, e events.Event, tx *sql.Tx) (behaviour, error) {
	id, err := uuid.Parse(e.ID)
	if err != nil {
		c.diary.add("v", "an event with the id", e.ID)
		return cutShort, nil
	}
	if p := plan(id); p.tenant != e.TenantID || p.name != e.Name || e.Payload["order"] == nil {
		c.diary.add("v", "event", e.ID, "reached a handler as another:", e.TenantID, e.Name)
	}
	if s.stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	var before past
	if tx != nil {
		err = post(ctx, tx, e.TenantID, id)
	}
	script := scriptOf(id, s.key)
	if err == nil && (!s.crowd || script.by != succeeds) {
		before, err = c.past(ctx, s, e, tx)
	}
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return cutShort, nil
		case tx != nil:
			return undo, err // spends nothing
		}
		return snoozes, nil // likewise
	}
	took := s.duration(rand.Uint64())               //nolint:gosec // nothing secret about it
	if before.unfinished == 2 && !s.transactional { // more than that are run one at a time
		took += afterTakeover(rand.Uint64()) //nolint:gosec // likewise
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return script.next(before.attempts-before.timeouts, before.runs), nil
	case <-ctx.Done():
		return cutShort, nil
	}
}

// past is what has become of the runs before, as the row says.
type past struct {
	attempts, runs, unfinished int
	timeouts                   int // of the attempts
}

func (c *child) past(ctx context.Context, s subscriber, e events.Event, tx *sql.Tx) (p past, err error) {
	const query = `SELECT attempts, runs, unfinished, errors FROM event_deliveries
		WHERE tenant_id = $1 AND event_id = $2 AND subscriber_key = $3`
	var row *sql.Row
	if tx != nil {
		row = tx.QueryRowContext(ctx, query, e.TenantID, e.ID, s.key)
	} else {
		row = c.db.Read().QueryRowContext(ctx, query, e.TenantID, e.ID, s.key)
	}
	var history string
	if err = row.Scan(&p.attempts, &p.runs, &p.unfinished, &history); err == nil {
		_, p.timeouts, err = failures(history)
	}
	return p, err
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
