// Package rig puts the state machine together for tests, without River: a real database, a clock that the test moves, and
// wake-ups in a table of the same database, which the test works when it wants.
package rig

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/sweep"
	"github.com/openloam/loam/tenant"
)

// Times of a rig's protocol: the defaults of the engine.
const (
	Lease  = 60 * time.Second
	Margin = 10 * time.Second
)

// Limits are those of the engine.
var Limits = events.Limits{PayloadBytes: events.DefaultMaxPayloadBytes, Depth: events.DefaultMaxDepth}

// Rig is one process's state machine. Processes over one database share clock and wake-ups, see Second.
type Rig struct {
	T          testing.TB
	DB         *database.DB
	Clock      *Clock
	Wakeups    *Wakeups
	Registry   *durable.Registry
	Ledger     *ledger.Ledger
	Deliveries *durable.Deliveries
	Queue      *outbox.Queue
	Sweeper    *sweep.Sweeper
	Logs       *Logs
	Spans      *tracetest.SpanRecorder
	metrics    *sdkmetric.ManualReader
}

// New makes a rig with the tenants acme and globex. change can alter what durable.New gets.
func New(t testing.TB, db *database.DB, change ...func(*durable.Config)) *Rig {
	t.Helper()
	r := &Rig{T: t, DB: db, Clock: NewClock(), Wakeups: newWakeups(t, db)}
	Exec(t, db, `INSERT INTO loam_tenants (id, created_at) VALUES ('acme', $1), ('globex', $1)`, database.At(r.Clock.Now()))
	r.build(change)
	return r
}

// Second makes another process over the same database, clock and wake-ups, with a registry of its own.
func (r *Rig) Second(change ...func(*durable.Config)) *Rig {
	r.T.Helper()
	s := &Rig{T: r.T, DB: r.DB, Clock: r.Clock, Wakeups: r.Wakeups}
	s.build(change)
	return s
}

func (r *Rig) build(change []func(*durable.Config)) {
	r.T.Helper()
	r.Registry = durable.NewRegistry()
	r.Ledger = &ledger.Ledger{Lease: Lease, Margin: Margin, Dialect: r.DB.Dialect()}
	r.Logs = &Logs{}
	r.Spans = tracetest.NewSpanRecorder()
	r.metrics = sdkmetric.NewManualReader()
	cfg := durable.Config{
		DB: r.DB, Registry: r.Registry, Ledger: r.Ledger, Enqueuer: r.Wakeups, Tenants: tenants{r.DB}, Now: r.Clock.Now,
		Logger:      slog.New(r.Logs),
		Tracer:      sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.Spans)).Tracer("test"),
		Meter:       sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics)).Meter("test"),
		Concurrency: 100, HandlerTimeout: 60 * time.Second, StuckAfter: 5 * time.Second, CrashLimit: 10,
	}
	for _, c := range change {
		c(&cfg)
	}
	r.Registry, r.Ledger = cfg.Registry, cfg.Ledger
	var err error
	if r.Deliveries, err = durable.New(cfg); err != nil {
		r.T.Fatal(err)
	}
	r.Queue, err = outbox.New(outbox.Config{
		DB: r.DB, Tenants: cfg.Tenants, Now: r.Clock.Now, Logger: cfg.Logger, Meter: cfg.Meter, MaxAttempts: outbox.DefaultMaxAttempts,
		Capturer: r.Deliveries, Hold: func() bool { return false },
	})
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		r.Deliveries.Stop()
		r.Deliveries.Cancel()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Deliveries.Wait(ctx); err != nil {
			r.T.Error(err)
		}
	})
	r.Sweeper = sweep.New(sweep.Config{
		DB: r.DB, Deliveries: r.Deliveries, Ledger: r.Ledger, Tenants: cfg.Tenants, Now: r.Clock.Now, Logger: cfg.Logger,
		Limit: sweep.Limit, Timeout: 30 * time.Second,
	})
}

// Ctx is the test's context in a tenant.
func (r *Rig) Ctx(tenantID string) context.Context { return tenant.With(r.T.Context(), tenantID) }

// Publish captures an event in a tenant.
func (r *Rig) Publish(tenantID, name string, p events.Payload, opts ...events.PublishOption) events.Event {
	r.T.Helper()
	ctx := r.Ctx(tenantID)
	e, err := events.New(ctx, name, p, Limits, opts...)
	if err != nil {
		r.T.Fatal(err)
	}
	if err := r.Deliveries.Capture(ctx, e); err != nil {
		r.T.Fatal(err)
	}
	return e
}

// Enqueue writes an event of a tenant to event_queue.
func (r *Rig) Enqueue(tenantID, name string, p events.Payload, opts ...events.PublishOption) events.Event {
	r.T.Helper()
	ctx := r.Ctx(tenantID)
	e, err := events.New(ctx, name, p, Limits, opts...)
	if err != nil {
		r.T.Fatal(err)
	}
	if err := r.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return r.Queue.Enqueue(ctx, tx, e) }); err != nil {
		r.T.Fatal(err)
	}
	return e
}

// WithSink returns the queue of another process, whose relay sends to a sink.
func (r *Rig) WithSink(sink outbox.Sink) *outbox.Queue {
	r.T.Helper()
	cfg := r.Queue.Config
	cfg.Sink = sink
	q, err := outbox.New(cfg)
	if err != nil {
		r.T.Fatal(err)
	}
	return q
}

// Relay makes rounds until none finds anything, and returns how many rows they dealt with.
func (r *Rig) Relay() int {
	r.T.Helper()
	all := 0
	for {
		n, err := r.Queue.Round(r.T.Context())
		if err != nil {
			r.T.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all += n
	}
}

// Rows returns all deliveries of a tenant, in the order of capture.
func (r *Rig) Rows(tenantID string) []durable.EventDelivery {
	r.T.Helper()
	rows, err := r.Deliveries.List(r.Ctx(tenantID), durable.Query{Limit: 1_000_000})
	if err != nil {
		r.T.Fatal(err)
	}
	return rows
}

// Row returns the one delivery that a tenant has for a subscriber.
func (r *Rig) Row(tenantID, key string) durable.EventDelivery {
	r.T.Helper()
	var found []durable.EventDelivery
	for _, row := range r.Rows(tenantID) {
		if row.SubscriberKey == key {
			found = append(found, row)
		}
	}
	if len(found) != 1 {
		r.T.Fatalf("%s has %d deliveries for %s, want one", tenantID, len(found), key)
	}
	return found[0]
}

// Work delivers what is woken and due by the clock until nothing is, and returns how many wake-ups that were.
func (r *Rig) Work() int {
	r.T.Helper()
	n := 0
	for {
		w, ok := r.Wakeups.Next(r.Clock.Now())
		if !ok {
			return n
		}
		n++
		r.Deliver(w)
	}
}

// Deliver does what the worker does with a wake-up.
func (r *Rig) Deliver(w durable.Wakeup) {
	r.T.Helper()
	for _, u := range w.ByTenant() {
		ctx := r.Ctx(u.Tenant)
		var err error
		if u.Queue == durable.SuspectQueue {
			err = r.Deliveries.DeliverAlone(ctx, u.IDs[0])
		} else {
			err = r.Deliveries.Deliver(ctx, u.IDs...)
		}
		if err != nil {
			r.T.Errorf("Deliver(%v): %v", u, err)
		}
	}
}

// Count returns the value of a counter, added up over all labels, or over those with the value of one.
func (r *Rig) Count(name string, labels ...string) int64 {
	r.T.Helper()
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(r.T.Context(), &all); err != nil {
		r.T.Fatal(err)
	}
	var n int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if len(labels) == 0 {
					n += p.Value
				}
				for _, kv := range p.Attributes.ToSlice() {
					if len(labels) > 0 && kv.Value.AsString() == labels[0] {
						n += p.Value
					}
				}
			}
		}
	}
	return n
}

// Exec runs a statement on the database.
func Exec(t testing.TB, db *database.DB, query string, args ...any) {
	t.Helper()
	err := db.InTx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Scan reads one row of the database.
func Scan(t testing.TB, db *database.DB, query string, args []any, dest ...any) {
	t.Helper()
	if err := db.Read().QueryRowContext(context.Background(), query, args...).Scan(dest...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Clock is a clock that stands until the test moves it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock at a fixed time that is no round figure.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 29, 0, 59, 58, 123456789, time.UTC)}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// tenants is the table loam_tenants.
type tenants struct{ db *database.DB }

// Exists implements tenant.Directory.
func (t tenants) Exists(ctx context.Context, q tenant.Querier, id string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, `SELECT count(*) FROM loam_tenants WHERE id = $1`, id).Scan(&n)
	return n > 0, err
}

// List implements tenant.Directory.
func (t tenants) List(ctx context.Context, after string, limit int) ([]string, error) {
	var ids []string
	err := t.db.Mapper().NewSelect().Table("loam_tenants").Column("id").Where("id > ?", after).Order("id").Limit(int64(limit)).
		Scan(ctx, &ids)
	return ids, err
}
