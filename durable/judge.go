package durable

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

// How the last errors begin of rows that were parked without a run; the page tells them apart by these.
const (
	unknownReason = "no registered subscriber "
	crashReason   = "parked: the process died "
)

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
		row.LastError = fmt.Sprintf(unknownReason+"%q", row.SubscriberKey)
	case crashes > c.d.CrashLimit:
		row.LastError = fmt.Sprintf(crashReason+"%d times in a row while this was being run (the limit is %d)",
			crashes, c.d.CrashLimit)
	default:
		c.runs = append(c.runs, &run{row: row, sub: sub, claim: cl})
		return nil
	}
	if _, err := c.d.Ledger.Release(ctx, tx, cl); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = 'dead', last_error = $3, next_attempt_at = NULL,
		runs = runs - 1, unfinished = 0, updated_at = $4 WHERE tenant_id || '' = $1 AND id = $2 AND `+isPending,
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
	if _, err := tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET runs = runs - 1, unfinished = unfinished - 1, next_attempt_at = $3,
		updated_at = $4 WHERE tenant_id || '' = $1 AND id = $2 AND `+isPending, row.TenantID, row.ID, next, database.At(now)); err != nil {
		return err
	}
	c.back = append(c.back, Ref{ID: row.ID, Key: row.SubscriberKey, Unfinished: row.Unfinished - 1, at: next.Time})
	return nil
}
