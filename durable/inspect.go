package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// Inspection is one delivery, with what is known about what happens to it next.
type Inspection struct {
	EventDelivery
	// Reason is set for a dead row.
	Reason Reason
	// Subscriber is the registration in this process, with its Timeout filled in; nil if it has none.
	Subscriber *Subscriber
	// LastSeen is when some process last said that it has the handler; zero if none ever did. Alive says that one does so
	// now, this one or another.
	LastSeen time.Time
	Alive    bool
	// Started is when the run that goes on now was claimed, zero if none does. Lost says that its process has not been heard
	// of since.
	Started time.Time
	Lost    bool
	// Paused says that deliveries of the subscriber wait.
	Paused bool
}

// Inspect returns one delivery of the tenant in ctx, or ErrNotFound. It changes nothing.
func (d *Deliveries) Inspect(ctx context.Context, id string) (Inspection, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return Inspection{}, err
	}
	var row struct {
		EventDelivery `bun:",extend"`
		StartedMS     int64 `bun:"started_ms"`
		LeaseMS       int64 `bun:"lease_ms"`
		Paused        bool  `bun:"paused"`
	}
	const claim = ` FROM processed_events AS p WHERE p.tenant_id = d.tenant_id AND p.event_id = d.event_id
		AND p.handler = d.subscriber_key AND p.status <> 'done')`
	err = d.DB.Mapper().NewSelect().Model(&row).ColumnExpr(columns).
		ColumnExpr("(SELECT p.started_at"+claim+" AS started_ms").
		ColumnExpr("(SELECT p.lease_until"+claim+" AS lease_ms").
		ColumnExpr("EXISTS (SELECT 1 FROM loam_pauses AS z WHERE z.tenant_id = d.tenant_id AND z.subscriber_key = d.subscriber_key) AS paused").
		Where("d.tenant_id = ?", t).Where("d.id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return Inspection{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return Inspection{}, fmt.Errorf("read delivery: %w", database.Explain(err))
	}
	in := Inspection{EventDelivery: row.EventDelivery, Paused: row.Paused}
	if row.StartedMS != 0 {
		in.Started = time.UnixMilli(row.StartedMS).UTC()
		in.Lost = row.LeaseMS+d.Ledger.Margin.Milliseconds() <= database.Millis(d.Now()) && !d.inflight.has(row.key())
	}
	sub, known := d.Registry.HandlerFor(row.SubscriberKey)
	if known {
		sub.Timeout = d.timeout(&sub)
		in.Subscriber = &sub
	}
	if row.Status == Dead {
		in.Reason = reason(row.LastError, row.Attempts, sub.MaxAttempts, known)
	}
	in.LastSeen, in.Alive, err = d.lastSeen(ctx, row.SubscriberKey)
	in.Alive = in.Alive || known
	return in, err
}

// lastSeen says when a process last said that it has the handler of key.
func (d *Deliveries) lastSeen(ctx context.Context, key string) (at time.Time, alive bool, err error) {
	known, err := d.readKnown(ctx, d.DB.Read())
	if err != nil {
		return time.Time{}, false, err
	}
	now := d.Now()
	for _, k := range known {
		if !k.answersTo(key) {
			continue
		}
		alive = alive || k.alive(now)
		if k.LastSeen.After(at) {
			at = k.LastSeen
		}
	}
	return at, alive, nil
}
