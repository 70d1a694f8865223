package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

const paid = "billing.invoice.paid"

// process is another process: a second handle on r's database, with faults and a registry of its own.
func process(t *testing.T, r *rig.Rig, change ...func(*durable.Config)) (*rig.Rig, *dbtest.Faults) {
	t.Helper()
	db, faults := dbtest.Again(t, r.DB)
	base := *r
	base.DB = db
	return base.Second(append([]func(*durable.Config){func(c *durable.Config) { c.Ledger = r.Ledger }}, change...)...), faults
}

// knows gives a process the registry of r: it runs the same code.
func knows(r *rig.Rig) func(*durable.Config) {
	return func(c *durable.Config) { c.Registry = r.Registry }
}

// off sets a process's clock apart from r's.
func off(r *rig.Rig, by time.Duration) func(*durable.Config) {
	return func(c *durable.Config) { c.Now = func() time.Time { return r.Clock.Now().Add(by) } }
}

// crash is a process with the code of r that claims the row of acme and dies: the claim is committed, and nobody runs it.
func crash(t *testing.T, r *rig.Rig, id string) *rig.Rig {
	t.Helper()
	p, faults := process(t, r, knows(r))
	faults.After(func(op dbtest.Op) error {
		if op.Kind != "commit" {
			return nil
		}
		killed := errors.New("killed")
		faults.Before(func(dbtest.Op) error { return killed }) // the dead do nothing more
		p.Deliveries.Stop()                                    // no second try
		return killed
	})
	if err := p.Deliveries.DeliverAlone(r.Ctx("acme"), id); err == nil {
		t.Fatal("the process did not die")
	}
	faults.After(nil)
	faults.Before(nil)
	return p
}

// heldHandler runs until the test lets it return. It does not mind its context unless mindful.
type heldHandler struct {
	started chan context.Context
	result  chan error
	mindful bool
}

// newHeld makes a heldHandler that returns at the end of the test at the latest.
func newHeld(t *testing.T) *heldHandler {
	t.Helper()
	h := &heldHandler{started: make(chan context.Context, 100), result: make(chan error)}
	t.Cleanup(func() { close(h.result) })
	return h
}

func (h *heldHandler) Handle(ctx context.Context, _ events.Event) error {
	h.started <- ctx
	var done <-chan struct{}
	if h.mindful {
		done = ctx.Done()
	}
	select {
	case err := <-h.result:
		return err
	case <-done:
		return context.Cause(ctx)
	}
}

// background delivers as a worker does, in a goroutine of its own.
func background(p *rig.Rig, ids ...string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.Deliveries.Deliver(p.Ctx("acme"), ids...) }()
	return done
}

// within receives, and fails the test when nothing comes.
func within[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}

// publishMany captures n events of acme, and returns the ids of their rows for one subscriber.
func publishMany(r *rig.Rig, n int, name, key string) []string {
	r.T.Helper()
	var ids []string
	for range n {
		r.Publish("acme", name, nil)
	}
	for _, row := range r.Rows("acme") {
		if row.SubscriberKey == key {
			ids = append(ids, row.ID)
		}
	}
	r.Wakeups.Clear()
	return ids
}

// claims counts the claims in the ledger.
func claims(t *testing.T, r *rig.Rig) int {
	t.Helper()
	var n int
	rig.Scan(t, r.DB, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`, nil, &n)
	return n
}

func slotsOf(n int) func(*durable.Config) { return func(c *durable.Config) { c.Concurrency = n } }

// bubble runs f in a synctest bubble, with a database that lives in it.
func bubble(t *testing.T, f func(t *testing.T, db *database.DB, faults *dbtest.Faults)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, faults := dbtest.Open(t)
		f(t, db, faults)
	})
}

// ended waits for the end of a call, which must have succeeded.
func ended(t *testing.T, done <-chan error, what string) {
	t.Helper()
	if err := within(t, done, what); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// ledgerRow is what processed_events has for a delivery.
type ledgerRow struct {
	Status, Owner         string
	Started, Lease, Ended int64
}

// claimOf reads the ledger's row of a delivery; its Status is "" when there is none.
func claimOf(t *testing.T, db *database.DB, row durable.EventDelivery) ledgerRow {
	t.Helper()
	var l ledgerRow
	rig.Scan(t, db, `SELECT coalesce(max(status), ''), coalesce(max(owner), ''), coalesce(max(started_at), 0),
			coalesce(max(lease_until), 0), coalesce(max(processed_at), 0)
		FROM processed_events WHERE tenant_id = $1 AND event_id = $2 AND handler = $3`,
		[]any{row.TenantID, row.EventID, row.SubscriberKey}, &l.Status, &l.Owner, &l.Started, &l.Lease, &l.Ended)
	return l
}

// allRows is every value of the deliveries and the ledger.
func allRows(t *testing.T, db *database.DB) string {
	t.Helper()
	return allOf(t, db, "event_deliveries") + allOf(t, db, "processed_events")
}

func allOf(t *testing.T, db *database.DB, table string) string {
	t.Helper()
	rows, err := db.Read().QueryContext(t.Context(), "SELECT * FROM "+table+" ORDER BY 1, 2, 3")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for rows.Next() {
		vals, dest := make([]any, len(cols)), make([]any, len(cols))
		for i := range vals {
			dest[i] = &vals[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, vals...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
