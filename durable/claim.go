package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

const (
	// earlyLimit is how early a wake-up may come to be put back for the due time: what clocks may differ by.
	earlyLimit = 10 * time.Second
	claimTries = 4
)

// due is the condition that row d may be run at parameter n: pending, due and not paused. The status is a literal: bound,
// SQLite would not use the partial index.
func due(n int) string {
	return fmt.Sprintf(`d.status = 'pending' AND (d.next_attempt_at IS NULL OR d.next_attempt_at <= ?%d)
		AND NOT EXISTS (SELECT 1 FROM loam_pauses z WHERE z.tenant_id = d.tenant_id AND z.subscriber_key = d.subscriber_key)`, n)
}

// claim is one try to take rows of one tenant: its owner stays the same over repeats, so that a repeat after a lost answer
// finds what the first try took.
type claim struct {
	d      *Deliveries
	tenant string
	owner  string
	ids    []string // to claim
	held   []string // asked for as well, and being run by this process: never claimed
	handOn []Wakeup // committed together with the claim
	repeat bool

	runs   []*run
	parked []EventDelivery
	back   []Ref // put back
}

// take claims in one transaction, repeated when the database fails. The rows that it grants are in c.runs.
func (c *claim) take(ctx context.Context) error {
	for try := 1; ; try++ {
		c.runs, c.parked, c.back = nil, nil, nil
		taken := time.Now() // the monotonic start of the lease, before the database can have seen it
		err := c.d.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return c.tx(ctx, tx) })
		if err == nil {
			for _, r := range c.runs {
				r.expires = taken.Add(c.d.Ledger.Lease - c.d.Ledger.Margin)
			}
			c.report(ctx)
			return nil
		}
		c.runs = nil
		if try == claimTries || !pause(ctx, c.d.stopping, backoff(try)) {
			return fmt.Errorf("claim: %w", err)
		}
		c.repeat = true
	}
}

func (c *claim) tx(ctx context.Context, tx *sql.Tx) error {
	now := c.d.Now()
	exists, err := c.d.Tenants.Exists(ctx, tx, c.tenant)
	if err != nil {
		return fmt.Errorf("ask for tenant %q: %w", c.tenant, err)
	}
	if !exists { // removed: the sweep parks its rows
		return nil
	}
	claims, counted, err := c.ledger(ctx, tx, now)
	if err != nil {
		return err
	}
	rows, err := c.rows(ctx, tx, now, counted)
	if err != nil {
		return err
	}
	byKey := make(map[ledger.Key]EventDelivery, len(rows))
	for _, row := range rows {
		byKey[row.key()] = row
	}
	granted := make(map[string]bool, len(rows))
	for _, cl := range claims {
		row, ok := byKey[cl.Key]
		if !ok { // no longer pending or due
			if _, err := c.d.Ledger.Release(ctx, tx, cl); err != nil {
				return err
			}
			continue
		}
		granted[row.ID] = true
		if err := c.judge(ctx, tx, now, row, cl); err != nil {
			return err
		}
	}
	again, err := c.leftover(ctx, tx, now, granted)
	if err != nil {
		return err
	}
	return c.d.Enqueuer.Enqueue(ctx, tx, append(c.handOn[:len(c.handOn):len(c.handOn)], c.d.wakeups(c.tenant, append(again, c.back...))...))
}

// ledger takes the claims. counted says that they were found rather than taken: their starts are counted already.
func (c *claim) ledger(ctx context.Context, tx *sql.Tx, now time.Time) (claims []ledger.Claim, counted bool, err error) {
	if c.repeat {
		claims, err = c.d.Ledger.Reclaim(ctx, tx, now, c.owner, ledger.Candidates{
			SQL: `SELECT tenant_id, event_id, subscriber_key AS handler FROM event_deliveries
				WHERE tenant_id = ?1 AND ` + database.AnyOf("id", 2),
			Args: []any{c.tenant, database.List(c.ids)},
		})
		if err != nil || len(claims) > 0 {
			return claims, true, err
		}
	}
	claims, err = c.d.Ledger.Claim(ctx, tx, now, c.owner, ledger.Candidates{
		SQL: `SELECT d.tenant_id, d.event_id, d.subscriber_key AS handler FROM event_deliveries AS d
			WHERE d.tenant_id = ?1 AND ` + database.AnyOf("d.id", 2) + ` AND ` + due(3),
		Args: []any{c.tenant, database.List(c.ids), database.At(now)},
	})
	return claims, false, err
}

// rows reads the claimed rows again, now that the ledger is held, and counts their starts. Only what it returns is run.
func (c *claim) rows(ctx context.Context, tx *sql.Tx, now time.Time, counted bool) ([]EventDelivery, error) {
	where := ` WHERE d.tenant_id = ?1 AND ` + database.AnyOf("d.id", 2) + ` AND ` + due(3) + `
		AND EXISTS (SELECT 1 FROM processed_events p WHERE p.tenant_id = d.tenant_id AND p.event_id = d.event_id
			AND p.handler = d.subscriber_key AND p.status = 'in_progress' AND p.owner = ?4)`
	query := `UPDATE event_deliveries AS d SET runs = runs + 1, unfinished = unfinished + 1` + where + ` RETURNING ` + columns
	if counted {
		query = `SELECT ` + columns + ` FROM event_deliveries AS d` + where
	}
	rows, err := tx.QueryContext(ctx, query, c.tenant, database.List(c.ids), database.At(now), c.owner)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []EventDelivery
	return out, errors.Join(c.d.DB.Mapper().ScanRows(ctx, rows, &out), rows.Err())
}

// judge decides under the claim: a key that only another process knows is put back; one that none knows, and a row that was
// in too many crashes, is parked and its claim deleted; any other is to be run.
func (c *claim) judge(ctx context.Context, tx *sql.Tx, now time.Time, row EventDelivery, cl ledger.Claim) error {
	sub, known := c.d.Registry.HandlerFor(row.SubscriberKey)
	crashes := row.Unfinished - 1 // this start is counted in it
	if !known {
		elsewhere, err := c.d.elsewhere(ctx, tx, row.SubscriberKey)
		if err != nil {
			return err
		}
		if elsewhere {
			return c.putBack(ctx, tx, now, row, cl)
		}
	}
	switch {
	case !known:
		row.LastError = fmt.Sprintf("no registered subscriber %q", row.SubscriberKey)
	case crashes > c.d.CrashLimit:
		row.LastError = fmt.Sprintf("parked: the process died %d times in a row while this was being run (the limit is %d)",
			crashes, c.d.CrashLimit)
	default:
		c.runs = append(c.runs, &run{row: row, sub: sub, claim: cl})
		return nil
	}
	if _, err := c.d.Ledger.Release(ctx, tx, cl); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE event_deliveries SET status = 'dead', last_error = ?3, next_attempt_at = NULL,
		runs = runs - 1, unfinished = 0, updated_at = ?4 WHERE tenant_id = ?1 AND id = ?2 AND status = 'pending'`,
		row.TenantID, row.ID, row.LastError, database.At(now))
	c.parked = append(c.parked, row)
	return err
}

// putBackFor is how long a row whose key only other processes know is left to them.
const putBackFor = 30 * time.Second

// putBack leaves the row to a process that knows its key. The start did not happen: it is taken back, and a suspect stays
// one.
func (c *claim) putBack(ctx context.Context, tx *sql.Tx, now time.Time, row EventDelivery, cl ledger.Claim) error {
	if _, err := c.d.Ledger.Release(ctx, tx, cl); err != nil {
		return err
	}
	next := database.At(now.Add(putBackFor))
	if _, err := tx.ExecContext(ctx, `UPDATE event_deliveries SET runs = runs - 1, unfinished = unfinished - 1, next_attempt_at = ?3,
		updated_at = ?4 WHERE tenant_id = ?1 AND id = ?2 AND status = 'pending'`, row.TenantID, row.ID, next, database.At(now)); err != nil {
		return err
	}
	c.back = append(c.back, Ref{ID: row.ID, Key: row.SubscriberKey, Unfinished: row.Unfinished - 1, at: next.Time})
	return nil
}

// leftover decides about the rows that were asked for and not granted, and returns those to be woken later.
func (c *claim) leftover(ctx context.Context, tx *sql.Tx, now time.Time, granted map[string]bool) ([]Ref, error) {
	var ask []string
	for _, id := range append(c.held[:len(c.held):len(c.held)], c.ids...) {
		if !granted[id] {
			ask = append(ask, id)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT d.id, d.subscriber_key, d.unfinished, d.next_attempt_at,
			coalesce(p.status, ''), coalesce(p.lease_until, 0)
		FROM event_deliveries AS d LEFT JOIN processed_events AS p
		  ON p.tenant_id = d.tenant_id AND p.event_id = d.event_id AND p.handler = d.subscriber_key
		WHERE d.tenant_id = ?1 AND `+database.AnyOf("d.id", 2)+` AND `+due(3),
		c.tenant, database.List(ask), database.At(now.Add(earlyLimit)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var again []Ref
	var done []string
	for rows.Next() {
		var r Ref
		var next database.Time
		var status ledger.Status
		var lease int64
		if err := rows.Scan(&r.ID, &r.Key, &r.Unfinished, &next, &status, &lease); err != nil {
			return nil, err
		}
		switch {
		case next.After(database.At(now).Time): // early: put back for the due time
			r.at = next.Time
		case status == ledger.Done:
			done = append(done, r.ID)
			continue
		case status == ledger.InProgress: // held: to be looked at when it can be taken over
			r.at = time.UnixMilli(lease).Add(c.d.Ledger.Margin)
			if soonest := now.Add(c.d.Ledger.Margin); r.at.Before(soonest) { // ours, and late with its renewal
				r.at = soonest
			}
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
	_, err := tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = 'delivered', delivered_at = ?3, last_error = NULL,
			next_attempt_at = NULL, unfinished = 0, updated_at = ?3
		WHERE d.tenant_id = ?1 AND `+database.AnyOf("d.id", 2)+` AND d.status = 'pending'
		  AND EXISTS (SELECT 1 FROM processed_events p WHERE p.tenant_id = d.tenant_id AND p.event_id = d.event_id
		      AND p.handler = d.subscriber_key AND p.status = 'done')`,
		c.tenant, database.List(ids), database.At(now))
	if err == nil {
		c.d.metrics.skip(ctx, skipDone, len(ids))
	}
	return err
}

// report says what the commit has made final.
func (c *claim) report(ctx context.Context) {
	for _, row := range c.parked {
		c.d.metrics.died(ctx, c.d.Registry, row.SubscriberKey)
		c.d.Logger.ErrorContext(ctx, "delivery parked as dead", append(row.attrs(), slog.String("reason", row.LastError))...)
		c.d.spanParked(ctx, &row)
	}
}
