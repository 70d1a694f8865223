package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// ErrNotDead is returned by Redeliver for a delivery that is not dead: it was redelivered already, or never was.
var ErrNotDead = errors.New("loam: the delivery is not dead; only a dead one can be redelivered")

// ErrChanged is returned by RedeliverSeen for a delivery that is dead, and has changed since it was seen: it was redelivered
// meanwhile and has died again.
var ErrChanged = errors.New("loam: the delivery has changed since it was seen")

// Redeliver makes a dead delivery of the tenant in ctx pending again, with its attempts to spend anew, and wakes it, in
// one transaction. Its history stays. ErrNotFound if the tenant has no such delivery, ErrNotDead if it is not dead (of two
// operators at once, the second gets that).
func (d *Deliveries) Redeliver(ctx context.Context, id string) error {
	return d.redeliver(ctx, id, database.Time{})
}

// RedeliverSeen is Redeliver for a delivery whose last change was seen to be at the time seen, its UpdatedAt: ErrChanged if
// it is dead and that is no longer so.
func (d *Deliveries) RedeliverSeen(ctx context.Context, id string, seen database.Time) error {
	if seen.IsZero() {
		return fmt.Errorf("%w: the time is zero", ErrChanged)
	}
	return d.redeliver(ctx, id, seen)
}

// redeliver does it on condition of the last change seen, or on none.
func (d *Deliveries) redeliver(ctx context.Context, id string, seen database.Time) error {
	t, err := tenant.Require(ctx)
	if err != nil {
		return err
	}
	if d.DB.InTransaction(ctx) {
		return events.ErrInTransaction
	}
	return d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row := EventDelivery{ID: id, TenantID: t}
		err := tx.QueryRowContext(ctx, `SELECT event_id, subscriber_key FROM event_deliveries WHERE tenant_id || '' = $1 AND id = $2`,
			t, id).Scan(&row.EventID, &row.SubscriberKey)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: %q", ErrNotFound, id)
		case err != nil:
			return err
		}
		if err := d.Ledger.Forget(ctx, tx, row.key()); err != nil {
			return err
		}
		n, err := affected(tx.ExecContext(ctx, `UPDATE event_deliveries SET status = 'pending', attempts = 0, unfinished = 0,
			next_attempt_at = NULL, last_error = NULL, delivered_at = NULL, discarded_at = NULL, updated_at = $3
			WHERE tenant_id || '' = $1 AND id = $2 AND status = 'dead' AND updated_at = coalesce($4, updated_at)`,
			t, id, database.At(d.Now()), seen))
		if err != nil {
			return err
		}
		if n == 0 { // rolled back, the ledger's row with it
			return d.notRedelivered(ctx, tx, row)
		}
		return d.Enqueuer.Enqueue(ctx, tx, d.wakeups(t, []Ref{{ID: id, Key: row.SubscriberKey}}))
	})
}

// notRedelivered says why: the row is read again, for another operator may have been waited for.
func (d *Deliveries) notRedelivered(ctx context.Context, tx *sql.Tx, row EventDelivery) error {
	err := tx.QueryRowContext(ctx, `SELECT status FROM event_deliveries WHERE tenant_id || '' = $1 AND id = $2`, row.TenantID, row.ID).Scan(&row.Status)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: %q", ErrNotFound, row.ID)
	case err != nil:
		return err
	case row.Status == Dead:
		return fmt.Errorf("%w: %q", ErrChanged, row.ID)
	}
	return fmt.Errorf("%w: it is %s", ErrNotDead, row.Status)
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
