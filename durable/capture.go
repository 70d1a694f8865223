package durable

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

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
		if d.unknown.First(e.TenantID) {
			d.Logger.WarnContext(ctx, "events not captured: unknown tenant", slog.String("tenant", e.TenantID), slog.String("event", e.Name))
		}
		return nil, nil
	}
	if e.Repeatable() {
		there, err := d.present(ctx, tx, []events.Event{e})
		if err != nil {
			return nil, err
		}
		if targets, err = missing(e, targets, there[idOf(e)]); err != nil {
			return nil, err
		}
	}
	rows, err := d.insert(ctx, tx, newRows(e, targets))
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", e.Name, err)
	}
	if err := d.Enqueuer.Enqueue(ctx, tx, d.wakeups(e.TenantID, rows)); err != nil {
		return nil, fmt.Errorf("capture %s: insert the wake-up: %w", e.Name, err)
	}
	return rows, nil
}
