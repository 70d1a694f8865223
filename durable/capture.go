package durable

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// Capture writes e for its durable subscribers in a transaction of its own; see CaptureTx. With no subscriber, or no
// tenant, it opens none.
func (d *Deliveries) Capture(ctx context.Context, e events.Event) error {
	if d.DB.InTransaction(ctx) {
		return events.ErrInTransaction
	}
	targets, err := d.wanted(ctx, d.DB.Own(), e)
	if err != nil || len(targets) == 0 {
		return err
	}
	var rows []Ref
	err = d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		rows, err = d.capture(ctx, tx, e, targets)
		return err
	})
	if err == nil {
		d.metrics.captured(ctx, rows)
	}
	return err
}

// CaptureTx writes one pending row for each durable subscriber that matches e, those of this process in the order of
// registration and then those of others, and the wake-ups for them, in tx. An event without a tenant, of an unknown tenant,
// or without a subscriber stores nothing and is not an error; it is counted. An event whose id the tenant already has adds
// rows only for subscribers that have none; with another name or payload it is events.ErrIDReused. On any error the caller
// rolls back.
func (d *Deliveries) CaptureTx(ctx context.Context, tx *sql.Tx, e events.Event) error {
	targets, err := d.wanted(ctx, tx, e)
	if err != nil || len(targets) == 0 {
		return err
	}
	rows, err := d.capture(ctx, tx, e, targets)
	if err == nil {
		d.metrics.captured(ctx, rows) // the caller may still roll back
	}
	return err
}

// wanted returns the subscribers that e is for, and counts why there are none.
func (d *Deliveries) wanted(ctx context.Context, q tenant.Querier, e events.Event) ([]target, error) {
	targets, err := d.targets(ctx, q, e.Name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("capture %s: %w", e.Name, err)
	case len(targets) == 0:
		d.metrics.skip(ctx, skipNoSubscriber, 1)
		return nil, nil
	case e.TenantID == "":
		d.metrics.skip(ctx, skipNoTenant, 1)
		d.Logger.DebugContext(ctx, "event not captured: no tenant in the context", slog.String("event", e.Name))
		return nil, nil
	}
	return targets, nil
}

func (d *Deliveries) capture(ctx context.Context, tx *sql.Tx, e events.Event, targets []target) ([]Ref, error) {
	exists, err := d.Tenants.Exists(ctx, tx, e.TenantID)
	if err != nil {
		return nil, fmt.Errorf("capture %s: ask for tenant %q: %w", e.Name, e.TenantID, err)
	}
	if !exists {
		d.metrics.skip(ctx, skipUnknownTenant, 1)
		if d.unknown.first(e.TenantID) {
			d.Logger.WarnContext(ctx, "events not captured: unknown tenant", slog.String("tenant", e.TenantID), slog.String("event", e.Name))
		}
		return nil, nil
	}
	if e.Repeatable() {
		if targets, err = missing(ctx, tx, e, targets); err != nil {
			return nil, err
		}
	}
	rows, err := d.insert(ctx, tx, e, targets)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", e.Name, err)
	}
	if err := d.Enqueuer.Enqueue(ctx, tx, d.wakeups(e.TenantID, rows)); err != nil {
		return nil, fmt.Errorf("capture %s: insert the wake-up: %w", e.Name, err)
	}
	return rows, nil
}

// missing returns the targets that have no row for e yet, under their key or an alias. It refuses an id that the tenant
// has for another event.
func missing(ctx context.Context, tx *sql.Tx, e events.Event, targets []target) ([]target, error) {
	rows, err := tx.QueryContext(ctx, `SELECT event_name, coalesce(original_payload, payload), subscriber_key FROM event_deliveries
		WHERE tenant_id = $1 AND event_id = $2`, e.TenantID, e.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have := map[string]bool{}
	for rows.Next() {
		var name, payload, key string
		if err := rows.Scan(&name, &payload, &key); err != nil {
			return nil, err
		}
		switch {
		case name != e.Name:
			return nil, fmt.Errorf("%w: %s is a %s, now published as %s", events.ErrIDReused, e.ID, name, e.Name)
		case payload != string(e.JSON()):
			return nil, fmt.Errorf("%w: %s was published with another payload (or by another actor)", events.ErrIDReused, e.ID)
		}
		have[key] = true
	}
	return slices.DeleteFunc(targets, func(t target) bool {
		return have[t.key] || slices.ContainsFunc(t.same, func(key string) bool { return have[key] })
	}), rows.Err()
}

// insertBatch keeps a statement far below the limits of parameters (SQLite's is 32,766), and short: SQLite looks for each
// parameter's name among those before it.
const insertBatch = 200

func (d *Deliveries) insert(ctx context.Context, tx *sql.Tx, e events.Event, targets []target) ([]Ref, error) {
	var out []Ref
	for len(targets) > 0 {
		n := min(len(targets), insertBatch)
		rows, err := d.insertSome(ctx, tx, e, targets[:n])
		if err != nil {
			return nil, err
		}
		out, targets = append(out, rows...), targets[n:]
	}
	return out, nil
}

// insertSome inserts a row per target and returns those that were not there yet.
func (d *Deliveries) insertSome(ctx context.Context, tx *sql.Tx, e events.Event, targets []target) ([]Ref, error) {
	var values strings.Builder
	args := []any{e.TenantID, e.ID, e.Name, string(e.JSON()), database.At(d.Now()), e.Headers.JSON()}
	byID := make(map[string]Ref, len(targets))
	for i, t := range targets {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a delivery id: %w", err)
		}
		if i > 0 {
			values.WriteString(", ")
		}
		n := len(args)
		fmt.Fprintf(&values, "($%d, $1, $2, $%d, $3, $%d, $4, $6, 'pending', $5, $5)", n+1, n+2, n+3)
		args = append(args, id.String(), t.key, t.queue)
		byID[id.String()] = Ref{ID: id.String(), Key: t.key}
	}
	rows, err := tx.QueryContext(ctx, `INSERT INTO event_deliveries
		(id, tenant_id, event_id, subscriber_key, event_name, queue, payload, headers, status, created_at, updated_at)
		VALUES `+values.String()+` ON CONFLICT (tenant_id, event_id, subscriber_key) DO NOTHING RETURNING id`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Ref
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, byID[id])
	}
	return out, rows.Err()
}

// onceEach remembers which ids it was asked about. It forgets all of them when they are many, so that hostile ids cannot
// fill the memory.
type onceEach struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (o *onceEach) first(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[id] {
		return false
	}
	if o.seen == nil || len(o.seen) >= 1000 {
		o.seen = map[string]bool{}
	}
	o.seen[id] = true
	return true
}
