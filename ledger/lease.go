package ledger

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/openloam/loam/database"
)

// Renew gives the claims a fresh lease, all in one statement, and returns those that were renewed. On PostgreSQL it leaves
// out those that another transaction has locked, and so waits for none. It crosses tenants: each claim is named with its own.
func (l *Ledger) Renew(ctx context.Context, tx *sql.Tx, now time.Time, claims []Claim) ([]Claim, error) {
	return l.change(ctx, tx, `lease_until = $1`, database.Millis(now)+l.Lease.Milliseconds(), claims, l.Dialect.LockFree("p"))
}

// change sets something, with one value, in the rows of claims that are held, and returns those. lock says how PostgreSQL locks
// them.
func (l *Ledger) change(ctx context.Context, tx *sql.Tx, set string, value int64, claims []Claim, lock string) ([]Claim, error) {
	columns := make([][]string, 5)
	for _, c := range claims {
		for i, v := range [...]string{c.Tenant, c.EventID, c.Handler, strconv.FormatInt(c.StartedAt, 10), c.Owner} {
			columns[i] = append(columns[i], v)
		}
	}
	table, args := l.Dialect.Rows(2, columns...)
	rows, err := tx.QueryContext(ctx, `
		UPDATE processed_events SET `+set+` WHERE (tenant_id, event_id, handler) IN
		       (SELECT p.tenant_id, p.event_id, p.handler FROM `+table+` CROSS JOIN processed_events AS p
		         WHERE p.tenant_id = j.c0 AND p.event_id = j.c1 AND p.handler = j.c2
		           AND p.status <> 'done' AND p.started_at = CAST(j.c3 AS bigint) AND p.owner = j.c4`+lock+`)
		RETURNING tenant_id, event_id, handler, started_at, owner`, append([]any{value}, args...)...)
	return scanClaims(rows, err)
}

// Held reports whether the claim is still its owner's, whatever its lease says. It is a plain read.
func (l *Ledger) Held(ctx context.Context, db *database.DB, c Claim) (bool, error) {
	var n int
	err := db.Own().QueryRowContext(ctx, `SELECT count(*) FROM processed_events
		WHERE tenant_id = $1 AND event_id = $2 AND handler = $3 AND status <> 'done' AND started_at = $4 AND owner = $5`,
		c.Tenant, c.EventID, c.Handler, c.StartedAt, c.Owner).Scan(&n)
	return n > 0, err
}

// Lost returns at most limit claims that may be taken over: their owners have not renewed them. It crosses tenants.
func (l *Ledger) Lost(ctx context.Context, db *database.DB, now time.Time, limit int) ([]Claim, error) {
	rows, err := db.Own().QueryContext(ctx, `SELECT tenant_id, event_id, handler, started_at, owner FROM processed_events
		WHERE status = 'in_progress' AND lease_until <= $1 ORDER BY lease_until LIMIT $2`, l.takeover(now), limit)
	return scanClaims(rows, err)
}

// Drop deletes a claim that may be taken over, and whose delivery is gone.
func (l *Ledger) Drop(ctx context.Context, tx *sql.Tx, now time.Time, c Claim) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM processed_events WHERE tenant_id = $1 AND event_id = $2 AND handler = $3
		AND status <> 'done' AND started_at = $4 AND owner = $5 AND lease_until <= $6`,
		c.Tenant, c.EventID, c.Handler, c.StartedAt, c.Owner, l.takeover(now))
	return err
}
