package loam

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/jobs"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/migrations"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/sweep"
)

// scope names the tracer and the meter.
const scope = "github.com/openloam/loam"

// Engine publishes events and, once started, works deliveries. It is safe for use by several goroutines.
type Engine struct {
	cfg        Config
	bus        events.Bus
	deliveries *durable.Deliveries
	queue      *outbox.Queue
	sweeper    *sweep.Sweeper
	jobs       *jobs.Jobs

	clock     clock
	unread    outage.Log // of the health report
	mu        sync.Mutex // of Start and Stop
	state     atomic.Int32
	stopRelay context.CancelFunc
	stopLoops context.CancelFunc
	loops     sync.WaitGroup
}

// New makes an Engine. It does no I/O and starts no goroutine. The error names every field of cfg that is wrong.
func New(cfg Config) (*Engine, error) {
	cfg = withDefaults(cfg)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("loam: Config: %w", err)
	}
	e := &Engine{cfg: cfg}
	river, err := jobs.New(cfg.DB, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("loam: %w", err)
	}
	led := &ledger.Ledger{Lease: cfg.Lease, Margin: cfg.TakeoverMargin, Dialect: cfg.DB.Dialect()}
	deliveries, err := durable.New(durable.Config{
		DB: cfg.DB, Registry: cfg.Registry, Ledger: led, Enqueuer: river, Tenants: cfg.Tenants, Now: cfg.Now,
		Logger: cfg.Logger, Tracer: cfg.TracerProvider.Tracer(scope), Meter: cfg.MeterProvider.Meter(scope),
		Concurrency: cfg.Concurrency, HandlerTimeout: cfg.HandlerTimeout, StuckAfter: cfg.StuckAfter, CrashLimit: cfg.CrashLimit,
		Middleware: cfg.Middleware,
	})
	if err != nil {
		return nil, fmt.Errorf("loam: %w", err)
	}
	sweeper := sweep.New(sweep.Config{
		DB: cfg.DB, Deliveries: deliveries, Ledger: led, Tenants: cfg.Tenants, Now: cfg.Now, Logger: cfg.Logger,
		Limit: cfg.SweepLimit, Timeout: cfg.SweepTimeout,
		Keep: sweep.Keep{Delivered: cfg.KeepDelivered, Processed: cfg.KeepProcessed, Outbox: cfg.KeepOutbox, Dead: cfg.KeepDead},
	})
	queue, err := outbox.New(outbox.Config{
		DB: cfg.DB, Sink: cfg.Bus, Tenants: cfg.Tenants, Now: cfg.Now, Logger: cfg.Logger, Meter: cfg.MeterProvider.Meter(scope),
		MaxAttempts: cfg.OutboxMaxAttempts, Capturer: deliveries, Hold: e.clock.off.Load, KeepReceived: cfg.KeepEvents,
	})
	if err != nil {
		return nil, fmt.Errorf("loam: %w", err)
	}
	e.deliveries, e.queue, e.sweeper, e.jobs = deliveries, queue, sweeper, river
	return e, nil
}

// Migrate brings the database to this build's schema, River's tables included. Several processes may call it at once.
func (e *Engine) Migrate(ctx context.Context) error {
	if _, err := migrations.Migrate(ctx, e.cfg.DB, e.cfg.Now()); err != nil {
		return fmt.Errorf("loam: %w", err)
	}
	return nil
}

// Subscribe adds an inline subscriber: it runs in the publisher's goroutine before Publish returns, and nothing of it is
// stored or retried. The empty pattern is every event. It returns a function that takes the subscriber away again. A bad
// pattern or a nil handler panics.
func (e *Engine) Subscribe(pattern string, handle events.HandlerFunc) (unsubscribe func()) {
	return e.bus.Subscribe(pattern, handle)
}

// Publish publishes an event in the tenant of ctx: the rows of its durable subscribers are committed, then its inline
// subscribers run. See PublishTx for an event that belongs to data.
//
// When capture fails, that error comes back and nobody was called: events.ErrInvalidName, ErrInvalidPayload, ErrInvalidID,
// ErrTooDeep and ErrIDReused say what was wrong, and nothing was stored; after any other error the caller may publish again,
// with the same id if it gave one, for the answer of a commit can be lost. A *events.SubscriberError means that the event was captured: do not publish it again.
// Inside a transaction of this engine it returns events.ErrInTransaction at once. A panic of an inline subscriber goes on
// to the caller after all have run.
func (e *Engine) Publish(ctx context.Context, name string, p events.Payload, opts ...events.PublishOption) error {
	if e.cfg.DB.InTransaction(ctx) {
		return events.ErrInTransaction
	}
	ev, err := events.New(ctx, name, p, e.cfg.limits(), opts...)
	if err != nil {
		return err
	}
	if err := e.capture(ctx, ev); err != nil {
		ev.Unpublished()
		return fmt.Errorf("loam: %w", err)
	}
	return e.bus.Dispatch(ctx, ev)
}

// PublishTx is Publish in the caller's transaction, which must be of the engine's database: the event's deliveries are
// there if and only if the transaction commits. Inline subscribers run now; they reach the transaction through Event.Tx.
// On any error the caller rolls back, and all is undone.
func (e *Engine) PublishTx(ctx context.Context, tx *sql.Tx, name string, p events.Payload, opts ...events.PublishOption) error {
	if tx == nil {
		return errors.New("loam: PublishTx: the transaction is nil; use Publish without one")
	}
	ev, err := events.New(ctx, name, p, e.cfg.limits(), opts...)
	if err != nil {
		return err
	}
	ctx = e.cfg.DB.MarkTx(ctx)
	if err := e.captureTx(ctx, tx, ev); err != nil {
		ev.Unpublished()
		return fmt.Errorf("loam: %w", database.Explain(err))
	}
	return e.bus.Dispatch(ctx, ev.WithTx(tx))
}

// capture stores an event for its durable subscribers.
func (e *Engine) capture(ctx context.Context, ev events.Event) error {
	switch {
	case e.cfg.Capture == Outbox:
		return e.queue.Publish(ctx, ev)
	case !e.cfg.KeepEvents:
		return e.deliveries.Capture(ctx, ev)
	}
	return e.cfg.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error { return e.captureTx(ctx, tx, ev) })
}

func (e *Engine) captureTx(ctx context.Context, tx *sql.Tx, ev events.Event) error {
	if e.cfg.Capture == Outbox {
		return e.queue.Enqueue(ctx, tx, ev)
	}
	if err := e.deliveries.CaptureTx(ctx, tx, ev); err != nil || !e.cfg.KeepEvents {
		return err
	}
	return e.queue.Keep(ctx, tx, ev)
}

// InTx runs fn in one transaction: committed when fn returns nil, else rolled back. Publish on the context that fn gets
// returns events.ErrInTransaction; use PublishTx. On SQLite it is the only one that writes: keep it short. It waits at
// most 10 s for its turn (database.ErrWait).
func (e *Engine) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return e.cfg.DB.InTx(ctx, fn)
}

// Redeliver makes a dead delivery of the tenant in ctx pending again, with all its attempts, and wakes it.
// durable.ErrNotFound if the tenant has no such delivery, durable.ErrNotDead if it is not dead.
func (e *Engine) Redeliver(ctx context.Context, id string) error {
	return e.deliveries.Redeliver(ctx, id)
}

// Deliveries returns a page of the deliveries of the tenant in ctx, in the order of their capture.
func (e *Engine) Deliveries(ctx context.Context, q durable.Query) ([]durable.EventDelivery, error) {
	return e.deliveries.List(ctx, q)
}

// Explain returns the durable subscribers that an event of this name would reach: those of this process, and those that
// only other processes have.
func (e *Engine) Explain(ctx context.Context, name string) ([]durable.Explanation, error) {
	return e.deliveries.Explain(ctx, name)
}

// Delivery returns one delivery of the tenant in ctx, or durable.ErrNotFound.
func (e *Engine) Delivery(ctx context.Context, id string) (durable.EventDelivery, error) {
	return e.deliveries.Get(ctx, id)
}
