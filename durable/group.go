package durable

import (
	"context"
	"database/sql"
	"strconv"
	"sync"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

// group commits successes that end at about the same time in one transaction: while it is being made, the next ones gather.
type group struct {
	mu      sync.Mutex
	waiting []*member
	busy    bool
}

// groupLimit is how many outcomes one transaction writes at most.
const groupLimit = 200

// member is an outcome that waits to be written.
type member struct {
	r       *run
	out     *outcome
	err     error
	written chan struct{}
}

// writeTogether is tryWrite for a success. What fails for one fails for all of its group, and each is then tried alone.
func (d *Deliveries) writeTogether(r *run, out *outcome) error {
	m := &member{r: r, out: out, written: make(chan struct{})}
	d.group.mu.Lock()
	d.group.waiting = append(d.group.waiting, m)
	lead := !d.group.busy
	d.group.busy = true
	d.group.mu.Unlock()
	if lead {
		d.calls.enter()
		go func() {
			defer d.calls.leave()
			d.commitGroups()
		}()
	}
	<-m.written
	return m.err
}

func (d *Deliveries) commitGroups() {
	for {
		d.group.mu.Lock()
		n := min(len(d.group.waiting), groupLimit)
		members := d.group.waiting[:n:n]
		d.group.waiting = d.group.waiting[n:]
		d.group.busy = n > 0
		d.group.mu.Unlock()
		if n == 0 {
			return
		}
		d.commitGroup(members)
		for _, m := range members {
			close(m.written)
		}
	}
}

func (d *Deliveries) commitGroup(members []*member) {
	if len(members) == 1 {
		members[0].err = d.tryWrite(members[0].r, members[0].out, false)
		return
	}
	ctx, cancel := context.WithTimeout(d.hard, outcomeLimit)
	defer cancel()
	err := d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.writeSuccesses(ctx, tx, members) })
	if err != nil {
		for _, m := range members {
			m.err = err
		}
	}
}

// writeSuccesses is writeSuccess for several.
func (d *Deliveries) writeSuccesses(ctx context.Context, tx *sql.Tx, members []*member) error {
	now := d.Now()
	claims := make([]ledger.Claim, len(members))
	for i, m := range members {
		claims[i] = m.r.claim
	}
	held, err := d.Ledger.DoneAll(ctx, tx, now, claims)
	if err != nil {
		return err
	}
	ours := make(map[ledger.Claim]bool, len(held))
	for _, c := range held {
		ours[c] = true
	}
	rows := make([][]string, 3)
	for _, m := range members {
		if ours[m.r.claim] {
			for c, v := range [...]string{m.r.row.TenantID, m.r.row.ID, strconv.FormatInt(m.out.took.Milliseconds(), 10)} {
				rows[c] = append(rows[c], v)
			}
		}
	}
	delivered, err := d.deliveredAll(ctx, tx, database.At(now), rows)
	if err != nil {
		return err
	}
	for _, m := range members {
		m.err, m.out.gone = nil, !delivered[m.r.row.ID]
		if !ours[m.r.claim] {
			m.err = errRefused
		}
	}
	return nil
}

// deliveredAll marks rows, each with its tenant, its id and how long it took, and returns which were pending.
func (d *Deliveries) deliveredAll(ctx context.Context, tx *sql.Tx, now database.Time, rows [][]string) (map[string]bool, error) {
	table, args := d.DB.Dialect().Rows(2, rows...)
	found, err := tx.QueryContext(ctx, `UPDATE event_deliveries AS d SET status = 'delivered', delivered_at = $1, last_error = NULL,
		next_attempt_at = NULL, unfinished = 0, duration_ms = CAST(j.c2 AS bigint), updated_at = $1
		FROM `+table+` WHERE d.tenant_id || '' = j.c0 AND d.id = j.c1 AND `+isPending+` RETURNING id`, append([]any{now}, args...)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	out := make(map[string]bool, len(rows[0]))
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		out[id] = true
	}
	return out, found.Err()
}
