package durable

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/openloam/loam/database"
)

// Ref is what is to be known of a row to wake it.
type Ref struct {
	ID         string
	Key        string
	Unfinished int
	// Tenant is that of the row, where rows of several are together.
	Tenant string

	at time.Time // zero: at once
}

// wakeups puts rows of one tenant into as few wake-ups as there are queues, times and hundreds; a suspect has its own.
func (d *Deliveries) wakeups(tenantID string, rows []Ref) []Wakeup {
	type group struct {
		queue string
		at    time.Time
	}
	open := map[group]int{}
	var out []Wakeup
	for _, r := range rows {
		g := group{d.queueFor(r.Key, r.Unfinished), ceilMillis(r.at)}
		i, ok := open[g]
		if !ok || g.queue == SuspectQueue || len(out[i].IDs) == MaxWakeup {
			i = len(out)
			open[g] = i
			out = append(out, Wakeup{Tenant: tenantID, Queue: g.queue, At: g.at})
		}
		out[i].IDs = append(out[i].IDs, r.ID)
	}
	return out
}

// mixedWakeups puts new rows of any tenants into as few wake-ups as there are queues and hundreds.
func (d *Deliveries) mixedWakeups(rows []Ref) []Wakeup {
	open := map[string]int{}
	var out []Wakeup
	for _, r := range rows {
		queue := d.queueFor(r.Key, r.Unfinished)
		i, ok := open[queue]
		if !ok || len(out[i].IDs) == MaxWakeup {
			i = len(out)
			open[queue] = i
			out = append(out, Wakeup{Queue: queue})
		}
		out[i].IDs, out[i].Tenants = append(out[i].IDs, r.ID), append(out[i].Tenants, r.Tenant)
	}
	for i, w := range out {
		if first := w.Tenants[0]; !slices.ContainsFunc(w.Tenants, func(t string) bool { return t != first }) {
			out[i].Tenant, out[i].Tenants = first, nil
		}
	}
	return out
}

// ByTenant returns the wake-up as one for each tenant, in the order in which they come.
func (w Wakeup) ByTenant() []Wakeup {
	if w.Tenants == nil {
		return []Wakeup{w}
	}
	open := map[string]int{}
	var out []Wakeup
	for i, id := range w.IDs {
		n, ok := open[w.Tenants[i]]
		if !ok {
			n = len(out)
			open[w.Tenants[i]] = n
			out = append(out, Wakeup{Tenant: w.Tenants[i], Queue: w.Queue, At: w.At})
		}
		out[n].IDs = append(out[n].IDs, id)
	}
	return out
}

// Wake inserts wake-ups for rows of one tenant, each wake-up in a transaction of its own so that no lock is held for long.
// One that fails is tried again in halves, so that a row that cannot be woken does not keep the others asleep; when the
// database cannot be written at all, it stops. It returns how many rows were woken; the error says how many were not, and
// the first reason.
func (d *Deliveries) Wake(ctx context.Context, tenantID string, rows []Ref) (int, error) {
	woken := 0
	var first error
	for _, w := range d.wakeups(tenantID, rows) {
		n, err := d.wakeOne(ctx, w)
		woken += n
		if first == nil {
			first = err
		}
		if err != nil && database.Unavailable(err) {
			break
		}
	}
	if first != nil {
		return woken, fmt.Errorf("%d of %d due deliveries were not woken: %w", len(rows)-woken, len(rows), first)
	}
	return woken, nil
}

// wakeOne returns how many rows it woke, and the first error.
func (d *Deliveries) wakeOne(ctx context.Context, w Wakeup) (int, error) {
	err := d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return d.Enqueuer.Enqueue(ctx, tx, []Wakeup{w})
	})
	if err == nil {
		return len(w.IDs), nil
	}
	if len(w.IDs) == 1 || database.Unavailable(err) {
		return 0, err
	}
	half := len(w.IDs) / 2
	left, right := w, w
	left.IDs, right.IDs = slices.Clone(w.IDs[:half]), slices.Clone(w.IDs[half:])
	n, errLeft := d.wakeOne(ctx, left)
	if errLeft != nil && database.Unavailable(errLeft) {
		return n, errLeft
	}
	m, errRight := d.wakeOne(ctx, right)
	return n + m, cmp.Or(errLeft, errRight)
}

// ceilMillis rounds up to River's resolution, so that a job never comes before its row is due.
func ceilMillis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if down := t.Truncate(time.Millisecond); down.Before(t) {
		return down.Add(time.Millisecond)
	}
	return t
}
