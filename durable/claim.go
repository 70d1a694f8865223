package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

const (
	// earlyLimit is how early a wake-up may come to be put back for the due time: what clocks may differ by.
	earlyLimit = 10 * time.Second
	claimTries = 4
)

// isPending is the condition that row d is pending, for statements that go by id: said so, PostgreSQL does not take the index
// of pending rows for it. For the same reason they say tenant_id || ”, see Dialect.ByID.
const isPending = `d.status <> 'delivered' AND d.status <> 'dead'`

// due is the condition that row d, found by its id, may be run at parameter n: pending, due and not paused.
func due(n int) string {
	return isPending + fmt.Sprintf(` AND (d.next_attempt_at IS NULL OR d.next_attempt_at <= $%d)
		AND NOT EXISTS (SELECT 1 FROM loam_pauses z WHERE z.tenant_id = d.tenant_id AND z.subscriber_key = d.subscriber_key)`, n)
}

// ofRow ends a subquery for a value of the ledger's row p of row d. As a value, and not as a join or EXISTS, PostgreSQL
// always finds it by its key.
const ofRow = ` FROM processed_events p WHERE p.tenant_id = d.tenant_id AND p.event_id = d.event_id AND p.handler = d.subscriber_key`

// claim is one try to take rows of one tenant: its owner stays the same over repeats, so that a repeat after a lost answer
// finds what the first try took.
type claim struct {
	d      *Deliveries
	tenant string
	owner  string
	ids    []string // to claim
	aside  []string // asked for as well, and not to be claimed: not due yet, or run by this process
	handOn []Wakeup // committed together with the claim
	slots  grant    // of ids
	repeat bool

	// Set by the transaction:
	taken  time.Time // on the monotonic clock: the start of the lease, before the database can have seen it
	runs   []*run
	parked []EventDelivery
	back   []Ref // put back
	done   int   // marked delivered because the ledger says so
}

// take claims in one transaction, repeated when the database fails, and returns what is to be run. When the database can be
// written, but these rows cannot be claimed, they are tried in halves, so that one bad row does not keep the others. With
// an error some may be granted all the same.
func (c *claim) take(ctx context.Context) ([]*run, error) {
	for try := 1; ; try++ {
		err := c.d.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return c.tx(ctx, tx) })
		if err == nil {
			for _, r := range c.runs {
				r.expires = c.taken.Add(c.d.Ledger.Lease - c.d.Ledger.Margin)
			}
			c.report(ctx)
			return c.runs, nil
		}
		c.repeat = true
		c.d.slots.far(c.slots)
		c.d.inflight.unreserve(c.runs)
		c.runs = nil
		if try < claimTries && pause(ctx, c.d.stopping, backoff(try)) {
			continue
		}
		c.release() //nolint:contextcheck // also when ctx has ended
		err = fmt.Errorf("claim: %w", err)
		if len(c.ids) < 2 || database.Unavailable(err) {
			return nil, err
		}
		c.d.Logger.ErrorContext(ctx, "some deliveries cannot be claimed, trying them in halves",
			slog.String("tenant", c.tenant), slog.Int("deliveries", len(c.ids)), slog.Any("error", err))
		return c.halves(ctx)
	}
}

func (c *claim) halves(ctx context.Context) ([]*run, error) {
	half := len(c.ids) / 2
	left := &claim{d: c.d, tenant: c.tenant, owner: ledger.NewOwner(), ids: c.ids[:half], aside: c.aside, handOn: c.handOn}
	right := &claim{d: c.d, tenant: c.tenant, owner: ledger.NewOwner(), ids: c.ids[half:]}
	runs, errLeft := left.take(ctx)
	more, errRight := right.take(ctx)
	return append(runs, more...), errors.Join(errLeft, errRight)
}

// release gives back, if the database lets it, what a try has taken whose answer was lost: nobody is there to run it. The
// starts that did not happen are taken back.
func (c *claim) release() {
	ctx, cancel := context.WithTimeout(c.d.hard, outcomeLimit)
	defer cancel()
	err := c.d.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		claims, err := c.d.Ledger.Reclaim(ctx, tx, c.d.Now(), c.owner, c.candidates())
		if err != nil || len(claims) == 0 {
			return err
		}
		var refs []Ref
		for _, cl := range claims {
			ref, pending, err := c.takeBack(ctx, tx, cl)
			if err != nil {
				return err
			}
			if pending {
				refs = append(refs, ref)
			}
		}
		return c.d.Enqueuer.Enqueue(ctx, tx, c.d.wakeups(c.tenant, refs))
	})
	if err != nil {
		c.d.outage.Failed(ctx, c.d.Logger, "giving back claims whose answer was lost", err)
	}
}

// takeBack gives a claim back whose start did not happen, although it was counted.
func (c *claim) takeBack(ctx context.Context, tx *sql.Tx, cl ledger.Claim) (ref Ref, pending bool, err error) {
	if _, err := c.d.Ledger.Release(ctx, tx, cl); err != nil {
		return Ref{}, false, err
	}
	ref.Key = cl.Handler
	err = tx.QueryRowContext(ctx, `UPDATE event_deliveries AS d SET runs = runs - 1, unfinished = unfinished - 1
		WHERE d.tenant_id = $1 AND d.event_id = $2 AND d.subscriber_key = $3 AND `+isPending+` RETURNING id, unfinished`,
		cl.Tenant, cl.EventID, cl.Handler).Scan(&ref.ID, &ref.Unfinished)
	if errors.Is(err, sql.ErrNoRows) {
		return Ref{}, false, nil
	}
	return ref, err == nil, err
}

// candidates are the rows of c, whatever their state.
func (c *claim) candidates() ledger.Candidates {
	return ledger.Candidates{
		SQL:  `SELECT d.tenant_id, d.event_id, d.subscriber_key AS handler FROM event_deliveries AS d WHERE ` + c.d.DB.Dialect().ByID(1, 2),
		Args: []any{c.tenant, database.List(c.ids)},
	}
}

func (c *claim) tx(ctx context.Context, tx *sql.Tx) error {
	c.runs, c.parked, c.back, c.done = nil, nil, nil, 0
	c.taken = time.Now()
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
			if counted {
				_, _, err = c.takeBack(ctx, tx, cl)
			} else {
				_, err = c.d.Ledger.Release(ctx, tx, cl)
			}
			if err != nil {
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
	wakeups := slices.Concat(c.handOn, c.d.wakeups(c.tenant, append(again, c.back...)))
	if err := c.d.Enqueuer.Enqueue(ctx, tx, wakeups); err != nil {
		return err
	}
	c.d.inflight.reserve(c.runs) // from the commit on: another call of this process may be at the same rows
	return nil
}

// ledger takes the claims. counted says that they were found rather than taken: their starts are counted already.
func (c *claim) ledger(ctx context.Context, tx *sql.Tx, now time.Time) (claims []ledger.Claim, counted bool, err error) {
	if c.repeat {
		claims, err = c.d.Ledger.Reclaim(ctx, tx, now, c.owner, c.candidates())
		if err != nil || len(claims) > 0 {
			return claims, true, err
		}
	}
	free, err := c.notRunning(ctx, tx)
	if err != nil {
		return nil, false, err
	}
	claims, err = c.d.Ledger.Claim(ctx, tx, now, c.owner, ledger.Candidates{
		SQL: `SELECT d.tenant_id, d.event_id, d.subscriber_key AS handler FROM event_deliveries AS d
			WHERE ` + c.d.DB.Dialect().ByID(1, 2) + ` AND ` + due(3),
		Args: []any{c.tenant, database.List(free), database.At(now)},
	})
	return claims, false, err
}

// notRunning returns the rows that this process is not running: it may have begun to since they were chosen.
func (c *claim) notRunning(ctx context.Context, tx *sql.Tx) ([]string, error) {
	if c.d.inflight.empty() {
		return c.ids, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT d.id, d.event_id, d.subscriber_key FROM event_deliveries AS d WHERE `+c.d.DB.Dialect().ByID(1, 2),
		c.tenant, database.List(c.ids))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var free []string
	for rows.Next() {
		row := EventDelivery{TenantID: c.tenant}
		if err := rows.Scan(&row.ID, &row.EventID, &row.SubscriberKey); err != nil {
			return nil, err
		}
		if !c.d.inflight.has(row.key()) {
			free = append(free, row.ID)
		}
	}
	return free, rows.Err()
}

// rows reads the claimed rows again, now that the ledger is held, and counts their starts. Only what it returns is run.
func (c *claim) rows(ctx context.Context, tx *sql.Tx, now time.Time, counted bool) ([]EventDelivery, error) {
	where := ` WHERE ` + c.d.DB.Dialect().ByID(1, 2) + ` AND ` + due(3) + `
		AND (SELECT p.status = 'in_progress' AND p.owner = $4` + ofRow + `)`
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

// report says what the commit has made final.
func (c *claim) report(ctx context.Context) {
	if c.done > 0 {
		c.d.metrics.skip(ctx, skipDone, c.done)
	}
	for _, row := range c.parked {
		c.d.metrics.died(ctx, c.d.Registry, row.SubscriberKey)
		c.d.Logger.ErrorContext(ctx, "delivery parked as dead", append(row.attrs(), slog.String("reason", row.LastError))...)
		c.d.spanParked(ctx, &row)
	}
}
