package durable

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// RemovedReason is the last error of a row that was parked because its tenant is gone.
const RemovedReason = "parked: the tenant was removed"

// removeBatch is how many rows one transaction of ParkRemoved parks.
const removeBatch = 200

// ParkRemoved parks every pending row of the tenant in ctx as dead, because the tenant is gone, and deletes their ledger
// rows, so that the outcome of a run that goes on is refused. It works in small transactions and returns how many it
// parked.
func (d *Deliveries) ParkRemoved(ctx context.Context) (int, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for {
		var n int64
		err := d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
			n = 0
			found, err := d.seizePending(ctx, tx, t)
			if err != nil || len(found) == 0 {
				return err
			}
			ids := make([]string, len(found))
			for i := range found {
				ids[i] = found[i].ID
			}
			n, err = affected(tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = 'dead', last_error = $3, next_attempt_at = NULL,
				unfinished = 0, updated_at = $4 WHERE `+d.DB.Dialect().ByID(1, 2)+` AND `+isPending,
				t, database.List(ids), RemovedReason, database.At(d.Now())))
			for i := 0; err == nil && i < len(found); i++ {
				err = d.Ledger.Forget(ctx, tx, found[i].key())
			}
			return err
		})
		if err != nil {
			return total, fmt.Errorf("park the deliveries of a removed tenant: %w", err)
		}
		if n == 0 {
			return total, nil
		}
		total += int(n)
		d.metrics.removed(ctx, n)
	}
}

// seizePending takes the ledger's rows of some pending rows, in their order, and returns those.
func (d *Deliveries) seizePending(ctx context.Context, tx *sql.Tx, t string) ([]EventDelivery, error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, event_id, subscriber_key FROM event_deliveries
		WHERE tenant_id = $1 AND status = 'pending' ORDER BY event_id, subscriber_key LIMIT $2`, t, removeBatch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []EventDelivery
	for rows.Next() {
		row := EventDelivery{TenantID: t}
		if err := rows.Scan(&row.ID, &row.EventID, &row.SubscriberKey); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i := range found {
		if err := d.Ledger.Seize(ctx, tx, found[i].key()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// TenantsPending returns at most limit tenants after the given one that have pending rows, in ascending order. It crosses
// tenants, and reads one index entry for each.
func (d *Deliveries) TenantsPending(ctx context.Context, after string, limit int) ([]string, error) {
	rows, err := d.DB.Own().QueryContext(ctx, `WITH RECURSIVE t (id) AS (
			SELECT min(tenant_id) FROM event_deliveries WHERE status = 'pending' AND tenant_id > $1
			UNION ALL
			SELECT (SELECT min(tenant_id) FROM event_deliveries WHERE status = 'pending' AND tenant_id > t.id) FROM t WHERE t.id IS NOT NULL
		) SELECT id FROM t WHERE id IS NOT NULL LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list tenants with pending deliveries: %w", database.Explain(err))
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}
