package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/once"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/tenant"
)

// Config is what New needs. The engine fills it; all fields are required but Sink and KeepReceived.
type Config struct {
	DB      *database.DB
	Tenants tenant.Directory
	// Now is the clock of everything that is stored.
	Now    func() time.Time
	Logger *slog.Logger
	Meter  metric.Meter
	// MaxAttempts is how many failures of its own a row may have; with the last it is dead_lettered.
	MaxAttempts int
	// Capturer takes what the relay finds.
	Capturer Capturer
	// Hold, while it returns true, has the relay take nothing: the process's clock is off.
	Hold func() bool
	// Sink, if set, takes it instead.
	Sink Sink
	// KeepReceived keeps what Receive captures as rows that are done.
	KeepReceived bool
}

// Queue is the table event_queue and its relay. It is safe for use by several goroutines.
type Queue struct {
	Config

	metrics metrics
	unknown once.Each
	nudges
	rounds  outage.Log
	sending outage.Log
	away    atomic.Int32 // rounds in a row in which the sink could not be reached
	// awaySince is when the first of them was, in Unix nanoseconds.
	awaySince atomic.Int64
}

// New makes a Queue. It does no I/O and starts no goroutine.
func New(cfg Config) (*Queue, error) {
	m, err := newMetrics(cfg.Meter)
	if err != nil {
		return nil, err
	}
	return &Queue{Config: cfg, metrics: m, nudges: nudges{nudged: make(chan struct{}, 1)}}, nil
}

// Enqueue writes e as one row in tx: the event is there if and only if tx commits. An event without a tenant, or of an unknown
// one, stores nothing and is not an error; it is counted. An event whose id the tenant already has in the queue adds no row;
// with another name or payload it is events.ErrIDReused. On any error the caller rolls back.
func (q *Queue) Enqueue(ctx context.Context, tx *sql.Tx, e events.Event) error {
	stored, err := q.store(ctx, tx, e, Pending)
	if err != nil || !stored {
		return err
	}
	if q.DB.AfterCommit(ctx, func() { q.tell(ctx) }) || q.DB.Dialect() != database.PostgreSQL {
		return nil
	}
	if _, err := tx.ExecContext(ctx, notify, channel); err != nil { // the caller's own transaction tells all relays when it commits
		return fmt.Errorf("enqueue %s: %w", e.Name, err)
	}
	return nil
}

// publishTries is how often Publish tries when the connection breaks. The event's id makes a repeat harmless.
const publishTries = 4

// Publish is Enqueue without a transaction of the caller's: it is one statement, which commits by itself. When the connection
// breaks, or the answer is lost, it tries again; after an error of the last try the row may be there all the same.
func (q *Queue) Publish(ctx context.Context, e events.Event) error {
	table, isTable := q.Tenants.(tenant.Table)
	if !isTable || e.TenantID == "" {
		if known, err := q.known(ctx, q.DB.Own(), e); err != nil || !known {
			return err
		}
	}
	for try := 1; ; try++ {
		var stored bool
		err := q.DB.Alone(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
			if !isTable {
				stored, err = q.insert(ctx, conn, e, Pending, "true")
				return err
			}
			stored, err = q.insert(ctx, conn, e, Pending, table.Condition(2))
			if errors.Is(err, errUnstored) { // unless its tenant was added just now, or its row pruned
				if known, knownErr := q.known(ctx, conn, e); knownErr != nil || !known {
					err = knownErr
				}
			}
			return err
		})
		if err == nil && (stored || try > 1) {
			q.tell(ctx)
		}
		again := errors.Is(err, database.ErrUnreachable) || errors.Is(err, database.ErrConflict)
		if !again || try == publishTries || ctx.Err() != nil {
			return err
		}
	}
}

// Keep writes e as a row that is done: its deliveries are written by the same transaction, and a backfill finds it later.
func (q *Queue) Keep(ctx context.Context, tx *sql.Tx, e events.Event) error {
	_, err := q.store(ctx, tx, e, Done)
	return err
}

func (q *Queue) store(ctx context.Context, tx *sql.Tx, e events.Event, status Status) (bool, error) {
	known, err := q.known(ctx, tx, e)
	if err != nil || !known {
		return false, err
	}
	return q.insert(ctx, tx, e, status, "true")
}

// known reports whether e has a tenant that exists, and counts it if not.
func (q *Queue) known(ctx context.Context, in tenant.Querier, e events.Event) (bool, error) {
	if e.TenantID == "" {
		q.metrics.skip(ctx, skipNoTenant)
		q.Logger.DebugContext(ctx, "event not enqueued: no tenant in the context", slog.String("event", e.Name))
		return false, nil
	}
	exists, err := q.Tenants.Exists(ctx, in, e.TenantID)
	if err != nil {
		return false, fmt.Errorf("enqueue %s: ask for tenant %q: %w", e.Name, e.TenantID, database.Explain(err))
	}
	if !exists {
		q.metrics.skip(ctx, skipUnknownTenant)
		if q.unknown.First(e.TenantID) {
			q.Logger.WarnContext(ctx, "events not enqueued: unknown tenant", slog.String("tenant", e.TenantID), slog.String("event", e.Name))
		}
	}
	return exists, nil
}

// errUnstored is a row that was not stored, although the tenant has none for the event.
var errUnstored = fmt.Errorf("the row was neither stored nor there: %w", database.ErrConflict)

// writer is a transaction or a connection.
type writer interface {
	tenant.Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insert writes the row where a condition holds, and reports whether it did: it does not if it is there.
func (q *Queue) insert(ctx context.Context, in writer, e events.Event, status Status, where string) (bool, error) {
	res, err := in.ExecContext(ctx, `INSERT INTO event_queue (event_id, tenant_id, event_type, payload, headers, status, created_at)
		SELECT $1, CAST($2 AS TEXT), $3, $4, $5, $6, CAST($7 AS `+q.DB.Dialect().TimeType()+`) WHERE `+where+`
		ON CONFLICT (coalesce(tenant_id, ''), event_id) WHERE event_id IS NOT NULL DO NOTHING`,
		e.ID, e.TenantID, e.Name, string(e.JSON()), e.Headers.JSON(), status, database.At(q.Now()))
	if err != nil {
		return false, fmt.Errorf("enqueue %s: %w", e.Name, err)
	}
	n, err := res.RowsAffected()
	if err != nil || n > 0 {
		return n > 0, err
	}
	return false, q.same(ctx, in, e)
}

// same refuses an id that the tenant has in the queue for another event.
func (q *Queue) same(ctx context.Context, in tenant.Querier, e events.Event) error {
	var name, payload string
	err := in.QueryRowContext(ctx, `SELECT coalesce(event_type, ''), coalesce(payload, '') FROM event_queue
		WHERE coalesce(tenant_id, '') = $1 AND event_id = $2`, e.TenantID, e.ID).Scan(&name, &payload)
	switch {
	case errors.Is(err, sql.ErrNoRows): // pruned in between, or the condition did not hold
		return fmt.Errorf("enqueue %s: %w", e.Name, errUnstored)
	case err != nil:
		return fmt.Errorf("enqueue %s: %w", e.Name, err)
	}
	return e.SameAs(name, payload)
}
