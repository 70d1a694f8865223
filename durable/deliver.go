package durable

import (
	"context"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// Deliver runs the rows with these ids, of the tenant in ctx, that are pending, due, not paused and not being run, and
// returns when each has its outcome, is stuck, or ctx has ended (the runs go on then). Every other id is a no-op, as is a
// call for rows that another process runs; those that will be due are woken again.
//
// It claims as many as there are free slots and wakes the rest anew, for whoever is free. With no slot free it waits,
// holding no claim. What the handlers return is in the rows. It returns an error if the database failed before the claims,
// if ctx ended before a slot was free, if there is no tenant, or if the process is stopping (ErrStopping) or its clock is
// off (ErrClock); what was not done then is found by the sweep.
func (d *Deliveries) Deliver(ctx context.Context, ids ...string) error {
	return d.deliver(ctx, ids, false)
}

// DeliverAlone is Deliver for a row that was in crashes before, called where nothing else runs beside it.
func (d *Deliveries) DeliverAlone(ctx context.Context, id string) error {
	return d.deliver(ctx, []string{id}, true)
}

func (d *Deliveries) deliver(ctx context.Context, ids []string, alone bool) error {
	d.calls.enter()
	defer d.calls.leave()
	t, err := tenant.Require(ctx)
	if err != nil {
		return err
	}
	if d.clockOff.Load() {
		return ErrClock
	}
	rows, err := d.peek(ctx, t, ids)
	if err != nil {
		return fmt.Errorf("read the deliveries to run: %w", database.Explain(err))
	}
	c := &claim{d: d, tenant: t, owner: ledger.NewOwner()}
	var ready, later []Ref
	for _, r := range rows {
		switch {
		case r.early, d.inflight.has(ledger.Key{Tenant: t, EventID: r.eventID, Handler: r.Key}):
			c.aside = append(c.aside, r.ID)
		case r.Unfinished >= suspectFrom && !alone:
			later = append(later, r.Ref)
		default:
			ready = append(ready, r.Ref)
		}
	}
	var granted grant
	if len(ready) > 0 {
		var rest []Ref
		if granted, rest, err = d.slots.take(ctx, d.stopping, ready, d.limit); err != nil {
			return err
		}
		c.slots, later = granted, append(later, rest...)
		for _, r := range ready {
			if granted[r.ID] != nil {
				c.ids = append(c.ids, r.ID)
			}
		}
	}
	if len(c.ids)+len(c.aside)+len(later) == 0 {
		return nil
	}
	c.handOn = d.wakeups(t, later)
	runs, err := c.take(ctx)
	d.giveUnused(granted, runs)
	if len(runs) > 0 {
		d.runAll(ctx, granted, runs)
	}
	return err
}

// peeked is a row as it was before the claim: enough to choose, nothing to decide by.
type peeked struct {
	Ref
	eventID string
	early   bool // not due, but soon
}

// peek reads which rows are pending, not paused, and due or early by no more than a wake-up may be.
func (d *Deliveries) peek(ctx context.Context, tenantID string, ids []string) ([]peeked, error) {
	now := d.Now()
	rows, err := d.DB.Own().QueryContext(ctx, `SELECT d.id, d.event_id, d.subscriber_key, d.unfinished, coalesce(d.next_attempt_at > $4, false)
		FROM event_deliveries AS d WHERE `+d.DB.Dialect().ByID(1, 2)+` AND `+due(3)+` ORDER BY d.id`,
		tenantID, database.List(ids), database.At(now.Add(earlyLimit)), database.At(now))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []peeked
	for rows.Next() {
		var p peeked
		if err := rows.Scan(&p.ID, &p.eventID, &p.Key, &p.Unfinished, &p.early); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

// limit is the key that counts for a row's, which may be an alias, and its own concurrency, 0 for none.
func (d *Deliveries) limit(key string) (counts string, n int) {
	s, known := d.Registry.HandlerFor(key)
	if !known {
		return key, 0
	}
	return s.Key, s.Concurrency
}

// SetClockOff says whether this process's clock differs too much from the database's: while it does, Deliver claims
// nothing.
func (d *Deliveries) SetClockOff(off bool) { d.clockOff.Store(off) }

// giveUnused returns the slots of rows that were not granted; a run returns its own.
func (d *Deliveries) giveUnused(granted grant, runs []*run) {
	running := make(map[string]bool, len(runs))
	for _, r := range runs {
		running[r.row.ID] = true
	}
	for id, slot := range granted {
		if !running[id] {
			d.slots.give(slot)
		}
	}
}
