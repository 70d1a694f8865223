package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// Cursor is the place of a row in the order of the sweep. The zero Cursor is before all.
type Cursor struct {
	Due database.Time `json:"due,omitzero"`
	ID  string        `json:"id,omitempty"`
}

// from is the time to begin at: a bound value, where no time would match nothing.
func (c Cursor) from() database.Time {
	if c.Due.IsZero() {
		return database.At(time.Unix(0, 0))
	}
	return c.Due
}

const dueOrder = "coalesce(d.next_attempt_at, d.created_at)"

// Due returns at most limit rows of the tenant in ctx that are pending, due, not paused and not under a live claim, the
// oldest due first, beginning after the cursor, and the cursor of the last. It changes nothing.
func (d *Deliveries) Due(ctx context.Context, now time.Time, after Cursor, limit int) ([]Ref, Cursor, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return nil, after, err
	}
	rows, err := d.DB.Own().QueryContext(ctx, `SELECT d.id, d.subscriber_key, d.unfinished, `+dueOrder+` FROM event_deliveries AS d
		WHERE d.tenant_id = $1 AND `+dueOrder+` <= $2 AND `+dueOrder+` >= $3 AND (`+dueOrder+`, d.id) > ($3, $4) AND d.status = 'pending' AND `+due(2)+`
		  AND NOT coalesce((SELECT p.status = 'in_progress' AND p.lease_until > $5`+ofRow+`), false)
		ORDER BY `+dueOrder+`, d.id LIMIT $6`,
		t, database.At(now), after.from(), after.ID, database.Millis(now)-d.Ledger.Margin.Milliseconds(), limit)
	if err != nil {
		return nil, after, fmt.Errorf("find due deliveries: %w", database.Explain(err))
	}
	defer rows.Close()
	var out []Ref
	for rows.Next() {
		var r Ref
		if err := rows.Scan(&r.ID, &r.Key, &r.Unfinished, &after.Due); err != nil {
			return nil, after, err
		}
		after.ID = r.ID
		out = append(out, r)
	}
	return out, after, rows.Err()
}

// backlogLimit is where Backlog stops counting.
const backlogLimit = 10_000

// Backlog counts the rows of the tenant in ctx that are pending and due, up to 10,000, and says since when the oldest is.
func (d *Deliveries) Backlog(ctx context.Context, now time.Time) (n int, oldest time.Time, err error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	var first database.Time
	err = d.DB.Own().QueryRowContext(ctx, `SELECT count(*), min(due) FROM (SELECT `+dueOrder+` AS due FROM event_deliveries AS d
		WHERE d.tenant_id = $1 AND d.status = 'pending' AND `+dueOrder+` <= $2 ORDER BY due LIMIT $3) AS first`,
		t, database.At(now), backlogLimit).Scan(&n, &first)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("count due deliveries: %w", database.Explain(err))
	}
	return n, first.Time, nil
}

// Claimed returns the rows that these claims, all of the tenant in ctx, are for, as far as they are pending, due at now and
// not paused. It changes nothing.
func (d *Deliveries) Claimed(ctx context.Context, now time.Time, claims []ledger.Claim) (map[ledger.Key]Ref, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([][2]string, len(claims))
	for i, c := range claims {
		keys[i] = [2]string{c.EventID, c.Handler}
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	rows, err := d.DB.Own().QueryContext(ctx, `SELECT d.id, d.event_id, d.subscriber_key, d.unfinished
		FROM `+d.DB.Dialect().Each(2)+` CROSS JOIN event_deliveries AS d
		WHERE d.tenant_id = $1 AND d.event_id = j.value ->> 0 AND d.subscriber_key = j.value ->> 1 AND `+due(3), t, string(list), database.At(now))
	if err != nil {
		return nil, fmt.Errorf("find claimed deliveries: %w", database.Explain(err))
	}
	defer rows.Close()
	out := map[ledger.Key]Ref{}
	for rows.Next() {
		var r Ref
		k := ledger.Key{Tenant: t}
		if err := rows.Scan(&r.ID, &k.EventID, &k.Handler, &r.Unfinished); err != nil {
			return nil, err
		}
		r.Key = k.Handler
		out[k] = r
	}
	return out, rows.Err()
}
