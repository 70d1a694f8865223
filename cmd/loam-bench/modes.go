package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

const (
	throughputEvent = "bench.throughput.sent"
	// filler makes the payload about as long as that of the prototypes, 75 bytes.
	filler = "the quick brown fox jumps over the lazy dog, again and again"
)

// mode is a way of taking events to their subscribers.
type mode struct {
	name  string
	start func(ctx context.Context, s setup) (contender, error)
}

// modes are all that are compared.
func modes() []mode {
	return []mode{
		{"direct", withLoam(loam.Direct)},
		{"outbox", withLoam(loam.Outbox)},
		{plainRiver, startRiver},
	}
}

// loamContender is an engine that works.
type loamContender struct {
	engine *loam.Engine
	db     *database.DB
}

// withLoam makes the start of a mode of Loam's. All else is by default.
func withLoam(capture loam.Capture) func(context.Context, setup) (contender, error) {
	return func(ctx context.Context, s setup) (contender, error) {
		registry := durable.NewRegistry()
		for i := range s.subscribers {
			registry.RegisterFunc(fmt.Sprintf("bench.subscriber%d", i), throughputEvent, func(context.Context, events.Event) error {
				s.handled.Add(1)
				return nil
			})
		}
		engine, err := loam.New(loam.Config{DB: s.db, Registry: registry, Logger: s.logger, Capture: capture})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, benchTenant), engine.Start(ctx)); err != nil {
			return nil, err
		}
		return loamContender{engine, s.db}, nil
	}
}

func (c loamContender) publish(ctx context.Context, n int64) error {
	return c.engine.Publish(tenant.With(ctx, benchTenant), throughputEvent, events.Payload{"n": n, "text": filler})
}

func (c loamContender) unfinished(ctx context.Context) (int, error) {
	return count(ctx, c.db, `SELECT count(*) FROM event_deliveries WHERE status = 'pending'`)
}

func (loamContender) copies() []string {
	return []string{
		`INSERT INTO event_deliveries (id, tenant_id, event_id, subscriber_key, event_name, queue, payload, headers, status, runs,
				delivered_at, duration_ms, created_at, updated_at)
			SELECT d.id || '-' || n, tenant_id, event_id || '-' || n, subscriber_key, event_name, queue, payload, headers, status, runs,
				delivered_at, duration_ms, created_at, updated_at FROM event_deliveries AS d CROSS JOIN c`,
		`INSERT INTO processed_events (tenant_id, event_id, handler, status, started_at, lease_until, owner, processed_at)
			SELECT tenant_id, event_id || '-' || n, handler, status, started_at, lease_until, owner, processed_at
			FROM processed_events CROSS JOIN c`,
		`INSERT INTO event_queue (event_id, tenant_id, event_type, payload, headers, status, created_at)
			SELECT event_id || '-' || n, tenant_id, event_type, payload, headers, status, created_at FROM event_queue CROSS JOIN c`,
		copyJobs,
	}
}

func (c loamContender) verify(ctx context.Context, deliveries int) error {
	all, err := count(ctx, c.db, `SELECT count(*) FROM event_deliveries`)
	if err != nil {
		return err
	}
	good, err := count(ctx, c.db, `SELECT count(*) FROM event_deliveries WHERE status = 'delivered' AND runs = 1 AND attempts = 0`)
	return errors.Join(err, complete(deliveries, all, good))
}

func (c loamContender) stop(ctx context.Context) error { return c.engine.Stop(ctx) }

func count(ctx context.Context, db *database.DB, query string) (n int, err error) {
	if err := db.Own().QueryRowContext(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("count: %w", database.Explain(err))
	}
	return n, nil
}

// complete returns an error unless all are there and good.
func complete(want, all, good int) error {
	if all != want || good != want {
		return fmt.Errorf("the measurement is void: %d deliveries are there and %d of them were done in one run, want %d", all, good, want)
	}
	return nil
}
