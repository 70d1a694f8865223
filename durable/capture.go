package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// Capture writes e for its durable subscribers in a transaction of its own; see CaptureTx. With no subscriber, or no
// tenant, it opens none.
func (d *Deliveries) Capture(ctx context.Context, e events.Event) error {
	if d.DB.InTransaction(ctx) {
		return events.ErrInTransaction
	}
	subs := d.wanted(ctx, e)
	if len(subs) == 0 {
		return nil
	}
	return d.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.capture(ctx, tx, e, subs) })
}

// CaptureTx writes one pending row for each durable subscriber that matches e, in the order of registration, and the
// wake-ups for them, in tx. An event without a tenant, of an unknown tenant, or without a subscriber stores nothing and is
// not an error; it is counted. An event whose id the tenant already has adds rows only for subscribers that have none;
// with another name or payload it is events.ErrIDReused. On any error the caller rolls back.
func (d *Deliveries) CaptureTx(ctx context.Context, tx *sql.Tx, e events.Event) error {
	subs := d.wanted(ctx, e)
	if len(subs) == 0 {
		return nil
	}
	return d.capture(ctx, tx, e, subs)
}

// wanted returns the subscribers that e is for, and counts why there are none.
func (d *Deliveries) wanted(ctx context.Context, e events.Event) []Subscriber {
	subs := d.Registry.SubscribersFor(e.Name)
	switch {
	case len(subs) == 0:
		d.metrics.skip(ctx, skipNoSubscriber, 1)
		return nil
	case e.TenantID == "":
		d.metrics.skip(ctx, skipNoTenant, 1)
		d.Logger.DebugContext(ctx, "event not captured: no tenant in the context", slog.String("event", e.Name))
		return nil
	}
	return subs
}

func (d *Deliveries) capture(ctx context.Context, tx *sql.Tx, e events.Event, subs []Subscriber) error {
	exists, err := d.Tenants.Exists(ctx, tx, e.TenantID)
	if err != nil {
		return fmt.Errorf("capture %s: ask for tenant %q: %w", e.Name, e.TenantID, err)
	}
	if !exists {
		d.metrics.skip(ctx, skipUnknownTenant, 1)
		if d.unknown.first(e.TenantID) {
			d.Logger.WarnContext(ctx, "events not captured: unknown tenant", slog.String("tenant", e.TenantID), slog.String("event", e.Name))
		}
		return nil
	}
	if e.GivenID() {
		if err := sameEvent(ctx, tx, e); err != nil {
			return err
		}
	}
	rows, err := d.insert(ctx, tx, e, subs)
	if err != nil {
		return fmt.Errorf("capture %s: %w", e.Name, err)
	}
	if err := d.Enqueuer.Enqueue(ctx, tx, d.wakeups(e.TenantID, rows)); err != nil {
		return fmt.Errorf("capture %s: insert the wake-up: %w", e.Name, err)
	}
	d.metrics.captured(ctx, rows)
	return nil
}

// sameEvent refuses an id that the tenant has for another event. All rows of an id agree, so one is enough.
func sameEvent(ctx context.Context, tx *sql.Tx, e events.Event) error {
	var name, payload string
	err := tx.QueryRowContext(ctx, `SELECT event_name, coalesce(original_payload, payload) FROM event_deliveries
		WHERE tenant_id = ?1 AND event_id = ?2 LIMIT 1`, e.TenantID, e.ID).Scan(&name, &payload)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case name != e.Name:
		return fmt.Errorf("%w: %s is a %s, now published as %s", events.ErrIDReused, e.ID, name, e.Name)
	case payload != string(e.JSON()):
		return fmt.Errorf("%w: %s was published with another payload (or by another actor)", events.ErrIDReused, e.ID)
	}
	return nil
}

// insertBatch keeps a statement below SQLite's limit of 32,766 parameters.
const insertBatch = 1000

func (d *Deliveries) insert(ctx context.Context, tx *sql.Tx, e events.Event, subs []Subscriber) ([]Ref, error) {
	var out []Ref
	for len(subs) > 0 {
		n := min(len(subs), insertBatch)
		rows, err := d.insertSome(ctx, tx, e, subs[:n])
		if err != nil {
			return nil, err
		}
		out, subs = append(out, rows...), subs[n:]
	}
	return out, nil
}

// insertSome inserts a row per subscriber and returns those that were not there yet.
func (d *Deliveries) insertSome(ctx context.Context, tx *sql.Tx, e events.Event, subs []Subscriber) ([]Ref, error) {
	var values strings.Builder
	args := []any{e.TenantID, e.ID, e.Name, string(e.JSON()), database.At(d.Now())}
	byID := make(map[string]Ref, len(subs))
	for i, s := range subs {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a delivery id: %w", err)
		}
		if i > 0 {
			values.WriteString(", ")
		}
		n := len(args)
		fmt.Fprintf(&values, "(?%d, ?1, ?2, ?%d, ?3, ?%d, ?4, 'pending', ?5, ?5)", n+1, n+2, n+3)
		args = append(args, id.String(), s.Key, s.Queue)
		byID[id.String()] = Ref{ID: id.String(), Key: s.Key}
	}
	rows, err := tx.QueryContext(ctx, `INSERT INTO event_deliveries
		(id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at)
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
