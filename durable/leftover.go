package durable

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

// besideWait is how long a wake-up waits that came while its row's run was on its way out.
const besideWait = time.Second

// leftover decides about the rows that were asked for and not granted, and returns those to be woken later.
func (c *claim) leftover(ctx context.Context, tx *sql.Tx, now time.Time, granted map[string]bool) ([]Ref, error) {
	var ask []string
	for _, id := range slices.Concat(c.aside, c.ids) {
		if !granted[id] {
			ask = append(ask, id)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT d.id, d.event_id, d.subscriber_key, d.unfinished, d.next_attempt_at,
			coalesce((SELECT p.status`+ofRow+`), ''), coalesce((SELECT p.lease_until`+ofRow+`), 0)
		FROM event_deliveries AS d WHERE `+c.d.DB.Dialect().ByID(1, 2)+` AND `+due(3),
		c.tenant, database.List(ask), database.At(now.Add(earlyLimit)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var again []Ref
	var done []string
	for rows.Next() {
		var r Ref
		key := ledger.Key{Tenant: c.tenant}
		var next database.Time
		var status ledger.Status
		var lease int64
		if err := rows.Scan(&r.ID, &key.EventID, &r.Key, &r.Unfinished, &next, &status, &lease); err != nil {
			return nil, err
		}
		key.Handler = r.Key
		switch {
		case next.After(database.At(now).Time): // early: put back for the due time
			r.at = next.Time
		case status == ledger.Done:
			done = append(done, r.ID)
			continue
		case status == ledger.InProgress: // held: to be looked at when it can be taken over
			if c.d.inflight.has(key) { // here: its run does what is needed
				continue
			}
			r.at = time.UnixMilli(lease).Add(c.d.Ledger.Margin)
		case c.d.inflight.has(key): // its run has its outcome, and that outcome may have inserted the very wake-up that is here
			r.at = now.Add(besideWait)
		}
		again = append(again, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return again, c.markDone(ctx, tx, now, done)
}

// markDone marks rows delivered whose handler the ledger says has succeeded, and says so only while it does.
func (c *claim) markDone(ctx context.Context, tx *sql.Tx, now time.Time, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = 'delivered', delivered_at = $3, last_error = NULL,
			next_attempt_at = NULL, unfinished = 0, updated_at = $3
		WHERE `+c.d.DB.Dialect().ByID(1, 2)+` AND `+isPending+`
		  AND (SELECT p.status = 'done'`+ofRow+`)`,
		c.tenant, database.List(ids), database.At(now))
	c.done = len(ids)
	return err
}
