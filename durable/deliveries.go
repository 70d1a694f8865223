package durable

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/once"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// MaxWakeup is how many rows one wake-up names at most.
const MaxWakeup = 100

// Wakeup asks for rows to be looked at. An extra one is harmless.
type Wakeup struct {
	// Tenant is that of all rows; empty if Tenants has one for each.
	Tenant string
	// IDs are at most MaxWakeup deliveries.
	IDs []string
	// Tenants, if set, are as long as IDs.
	Tenants []string
	// Queue is the River queue.
	Queue string
	// At is when; zero is at once.
	At time.Time
}

// Enqueuer inserts wake-ups in a transaction.
type Enqueuer interface {
	Enqueue(ctx context.Context, tx *sql.Tx, wakeups []Wakeup) error
}

// Config is what New needs. The engine fills it; all fields are required.
type Config struct {
	DB       *database.DB
	Registry *Registry
	Ledger   *ledger.Ledger
	Enqueuer Enqueuer
	Tenants  tenant.Directory
	// Now is the clock of everything that is stored.
	Now    func() time.Time
	Logger *slog.Logger
	Tracer trace.Tracer
	Meter  metric.Meter
	// Concurrency is how many handlers run at once in this process.
	Concurrency int
	// HandlerTimeout is the deadline of a run whose registration names none.
	HandlerTimeout time.Duration
	// StuckAfter is how long after its deadline a handler that has not returned is reported and loses its slot.
	StuckAfter time.Duration
	// CrashLimit is how many crashes a row may have been run in; above it is parked.
	CrashLimit int
	// Middleware runs around each handler, the first outermost.
	Middleware []Middleware
}

// Deliveries captures events and delivers them. It is safe for use by several goroutines.
type Deliveries struct {
	Config

	metrics    metrics
	middleware []Middleware
	slots      *slots
	inflight   *inflight
	turns      chan struct{} // of transactional handlers
	unknown    once.Each
	known      atomic.Pointer[[]Known]
	outage     outage.Log // of writing outcomes
	group      group

	clockOff atomic.Bool

	calls                counter       // of Deliver, and runs
	stopping             chan struct{} // closed: nothing new is claimed
	cancelling           chan struct{} // closed: handlers are cancelled
	stopOnce, cancelOnce sync.Once
	// hard is the context of what shutdown lets finish: outcomes. Abandon ends it.
	hard    context.Context //nolint:containedctx // the life of the object, not of a call
	abandon context.CancelFunc
}

// New makes a Deliveries. It does no I/O and starts no goroutine.
func New(cfg Config) (*Deliveries, error) {
	m, err := newMetrics(cfg.Meter)
	if err != nil {
		return nil, err
	}
	d := &Deliveries{
		Config: cfg, metrics: m, slots: newSlots(cfg.Concurrency), inflight: newInflight(),
		turns:    newTurns(cfg.DB, cfg.Concurrency),
		stopping: make(chan struct{}), cancelling: make(chan struct{}),
	}
	d.middleware = append([]Middleware{d.traced, d.logged}, cfg.Middleware...)
	d.hard, d.abandon = context.WithCancel(context.Background()) //nolint:forbidigo // see the field
	return d, nil
}

// longestTimeout is where a deadline ends that is meant to be none.
const longestTimeout = 365 * 24 * time.Hour

// timeout is the deadline of a run of s.
func (d *Deliveries) timeout(s *Subscriber) time.Duration {
	return s.Limit(d.DB.Dialect(), d.HandlerTimeout)
}

// queueFor is where a row is woken: a suspect alone, a subscriber's that some process has in its queue of now, and any other
// where every process works.
func (d *Deliveries) queueFor(key string, unfinished int) string {
	if unfinished >= suspectFrom {
		return SuspectQueue
	}
	if s, ok := d.Registry.HandlerFor(key); ok {
		return s.Queue
	}
	if q, ok := d.queueElsewhere(key); ok {
		return q
	}
	return DefaultQueue
}

// suspectFrom is the number of crashes from which on a row is woken alone.
const suspectFrom = 2
