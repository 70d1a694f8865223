package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/sweep"
	"github.com/openloam/loam/tenant"
)

const paid = "billing.invoice.paid"

// mailer registers a subscriber that succeeds, and returns how often it was called for each event.
func mailer(r *rig.Rig) map[string]int {
	calls, mu := map[string]int{}, sync.Mutex{}
	r.Registry.RegisterFunc("mailer", paid, func(_ context.Context, e events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		calls[e.ID]++
		return nil
	})
	return calls
}

// fill gives a tenant n rows in the order of their ids, id 1 the oldest.
func fill(t *testing.T, r *rig.Rig, tenantID string, n int, status durable.Status, key string, created time.Time) {
	t.Helper()
	at := database.At(created)
	rig.Insert(t, r.DB, "event_deliveries", "id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at",
		n, func(i int) []any {
			return []any{fmt.Sprintf("%s%s%06d", tenantID, key, i), tenantID, fmt.Sprint("e", i), key, paid, "loam", "{}", status, at, at}
		})
}

// woken returns the ids of all wake-ups, and forgets those.
func woken(r *rig.Rig) []string {
	var ids []string
	for _, w := range r.Wakeups.All() {
		ids = append(ids, w.IDs...)
	}
	r.Wakeups.Clear()
	return ids
}

// dump is every value of the deliveries and the ledger.
func dump(t *testing.T, db *database.DB) string {
	t.Helper()
	return rig.Dump(t, db, `SELECT * FROM event_deliveries ORDER BY id`) + "\n" + rig.Dump(t, db, `SELECT * FROM processed_events ORDER BY 1, 2, 3`)
}

// contract: S-02. The sweep wakes rows that are pending and due, the oldest due first and at most the limit, and returns how many;
// not those under a live claim or of a paused subscriber. It changes no row.
func TestRedeliverStuck(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		keys := []string{"second", "third", "first", "early", "dead", "delivered", "paused", "live", "over", "done"}
		for _, key := range keys {
			r.Registry.RegisterFunc(key, paid, func(context.Context, events.Event) error { return nil })
		}
		r.Publish("globex", paid, nil)
		r.Publish("acme", paid, nil)
		r.Clock.Add(time.Hour)
		r.Wakeups.Clear()
		set := func(key, what string, args ...any) {
			rig.Exec(t, db, `UPDATE event_deliveries SET `+what+` WHERE subscriber_key = $1 AND tenant_id = 'acme'`, append([]any{key}, args...)...)
		}
		now := r.Clock.Now()
		set("first", `next_attempt_at = $2`, database.At(now.Add(-2*time.Hour)))
		set("early", `next_attempt_at = $2`, database.At(now.Add(time.Microsecond)))
		set("dead", `status = 'dead'`)
		set("delivered", `status = 'delivered'`)
		rig.Exec(t, db, `INSERT INTO loam_pauses VALUES ('acme', 'paused', '2026-01-01')`)
		for key, lease := range map[string]int64{"live": -9_999, "over": -10_000, "done": 60_000} {
			status := "in_progress"
			if key == "done" {
				status = key
			}
			rig.Exec(t, db, `INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, $2, 1, $3, 'x', NULL
				FROM event_deliveries WHERE tenant_id = 'acme' AND subscriber_key = $1`, key, status, now.UnixMilli()+lease)
		}
		names := map[string]string{}
		for _, row := range r.Rows("acme") {
			names[row.ID] = row.SubscriberKey
		}
		before := dump(t, db)
		want := []string{"first", "second", "third", "over", "done"}
		for _, limit := range []int{2, 5, 500} {
			n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), now, limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range r.Wakeups.All() {
				if w.Tenant != "acme" || !w.At.IsZero() {
					t.Errorf("the wake-up %v", w)
				}
				for _, id := range w.IDs {
					got = append(got, names[id])
				}
			}
			r.Wakeups.Clear()
			if rest := want[:min(limit, len(want))]; !slices.Equal(got, rest) || n != len(rest) {
				t.Errorf("limit %d: woke %d: %v, want %v", limit, n, got, rest)
			}
		}
		if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), now.Add(time.Microsecond), 500); n != 6 || err != nil {
			t.Errorf("when the next is due as well: %d, %v", n, err)
		}
		if after := dump(t, db); after != before {
			t.Errorf("rows were changed:\n%s\n%s", before, after)
		}
	})
}

// contract: S-03, J-01. Without any wake-up that anybody keeps, every due row is delivered.
func TestTheSweepIsTheGuarantee(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		var mu sync.Mutex
		failures := map[string]int{}
		r.Registry.RegisterFunc("flaky", "billing.", func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if failures[e.ID]++; failures[e.ID] <= 2 {
				return errors.New("no")
			}
			return nil
		})
		const n = 40
		for i := range n {
			r.Publish([]string{"acme", "globex"}[i%2], paid, nil)
		}
		for _, wait := range []time.Duration{0, time.Minute, 5 * time.Minute} {
			r.Wakeups.Clear()
			r.Clock.Add(wait)
			if full, err := r.Sweeper.All(t.Context(), ""); len(full.Full) != 0 || err != nil {
				t.Fatal(full, err)
			}
			for { // the wake-ups of now, and none that an outcome adds
				w, ok := r.Wakeups.Next(r.Clock.Now())
				if !ok {
					break
				}
				r.Deliver(w)
			}
		}
		for _, row := range append(r.Rows("acme"), r.Rows("globex")...) {
			if row.Status != durable.Delivered {
				t.Errorf("%s of %s: %s", row.SubscriberKey, row.TenantID, row.Status)
			}
		}
		if len(calls) != n || len(failures) != n {
			t.Errorf("%d and %d events were handled, want %d", len(calls), len(failures), n)
		}
		for id, c := range calls {
			if c != 1 || failures[id] != 3 {
				t.Errorf("%s was handled %d and %d times", id, c, failures[id])
			}
		}
	})
}

// contract: S-04. A full sweep says where to go on, and the next one goes on there: every row has its turn, also when none of those
// before it is worked meanwhile.
func TestAFullSweepGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		for _, tc := range []struct {
			rows  int
			pages []int // rows that each pass wakes
		}{
			{1203, []int{500, 500, 203}}, {1000, []int{500, 500, 0}}, {499, []int{499}}, {0, []int{0}},
		} {
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
			if tc.rows > 0 {
				fill(t, r, "acme", tc.rows, durable.Pending, "mailer", r.Clock.Now())
			}
			pass, err := r.Sweeper.All(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			full := pass.Full
			var pages []int
			var ids []string
			for {
				for _, w := range r.Wakeups.All() {
					if len(w.IDs) > durable.MaxWakeup {
						t.Errorf("a wake-up of %d rows", len(w.IDs))
					}
				}
				page := woken(r)
				pages, ids = append(pages, len(page)), append(ids, page...)
				if len(full) == 0 {
					break
				}
				if len(pages) > len(tc.pages) {
					t.Fatalf("%d rows: the sweep has no end: %v", tc.rows, pages)
				}
				next, err := r.Sweeper.Tenant(t.Context(), full[0].Tenant, full[0].After)
				if err != nil || full[0].Tenant != "acme" {
					t.Fatal(full, err)
				}
				if full = nil; next != nil {
					full = []sweep.Full{*next}
				}
			}
			if !slices.Equal(pages, tc.pages) || !slices.IsSorted(ids) || len(slices.Compact(ids)) != tc.rows {
				t.Errorf("%d rows: woken by %v, want %v", tc.rows, pages, tc.pages)
			}
		}
	})
}

// contract: S-04, S-02. Rows that cannot be run do not fill the batch.
// scenario: B073
func TestRowsThatCannotRunDoNotStarveTheOthers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		old := r.Clock.Now().Add(-time.Hour)
		fill(t, r, "acme", 1000, durable.Dead, "dead", old)
		fill(t, r, "acme", 1000, durable.Pending, "paused", old)
		fill(t, r, "acme", 1000, durable.Pending, "running", old)
		rig.Exec(t, db, `INSERT INTO loam_pauses VALUES ('acme', 'paused', '2026-01-01')`)
		rig.Exec(t, db, `INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, 'in_progress', CAST($1 AS bigint), CAST($1 AS bigint) + 60000, 'x', NULL
			FROM event_deliveries WHERE subscriber_key = 'running'`, r.Clock.Now().UnixMilli())
		e := r.Publish("acme", paid, nil)
		r.Wakeups.Clear()
		if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 100); n != 1 || err != nil {
			t.Fatalf("one pass woke %d rows, %v", n, err)
		}
		if r.Work(); calls[e.ID] != 1 {
			t.Error("the row that was due was not run")
		}
	})
}

// contract: T-03. A sweep of one tenant needs it in its context; the others cross tenants, each in its own scope. A new method must
// be entered here.
func TestEveryMethodOfTheSweeperNeedsATenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		r.Publish("acme", paid, nil)
		asked := 0
		faults.Before(func(dbtest.Op) error {
			asked++
			return nil
		})
		exempt := map[string]bool{"All": true, "Tenant": true, "LostClaims": true, "Prune": true}
		for m := range reflect.TypeFor[*sweep.Sweeper]().Methods() {
			switch {
			case m.Name == "RedeliverStuck":
				for _, ctx := range []context.Context{t.Context(), tenant.With(t.Context(), "")} {
					if n, err := r.Sweeper.RedeliverStuck(ctx, r.Clock.Now(), 500); n != 0 || !errors.Is(err, tenant.ErrMissingTenant) {
						t.Errorf("without a tenant: %d, %v", n, err)
					}
				}
				if asked != 0 {
					t.Errorf("%d statements without a tenant", asked)
				}
			case !exempt[m.Name]:
				t.Errorf("%s must be entered", m.Name)
			}
		}
		faults.Before(nil)
		r.Wakeups.Clear()
		if n, err := r.Sweeper.RedeliverStuck(r.Ctx("globex"), r.Clock.Now(), 500); n != 0 || err != nil || len(woken(r)) != 0 {
			t.Errorf("another tenant's sweep woke %d rows, %v", n, err)
		}
		if _, err := r.Sweeper.Tenant(r.Ctx("acme"), "globex", durable.Cursor{}); err != nil || len(woken(r)) != 0 {
			t.Errorf("a sweep of globex, from the context of acme, woke acme's rows, %v", err)
		}
	})
}
