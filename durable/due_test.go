package durable_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// contract: D-07, J-02, T-05. A row that is not to be run is not touched, whatever wakes it.
func TestWhatIsNotDueIsNotRun(t *testing.T) {
	t.Parallel()
	const null = -1 << 62
	pause := func(tenant string) string {
		return `INSERT INTO loam_pauses VALUES ('` + tenant + `', 'mailer', '2026-01-01')`
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			runs++
			return nil
		})
		for _, tc := range []struct {
			name    string
			status  durable.Status
			due     time.Duration // from now; null is "at once"
			worker  string        // the worker's tenant
			prepare string
			runs    int
			putBack bool
		}{
			{"no next attempt", durable.Pending, null, "acme", "", 1, false},
			{"past", durable.Pending, -time.Hour, "acme", "", 1, false},
			{"equal to now", durable.Pending, 0, "acme", "", 1, false},
			{"a microsecond early", durable.Pending, time.Microsecond, "acme", "", 0, true},
			{"10 s early", durable.Pending, 10 * time.Second, "acme", "", 0, true},
			{"more than 10 s early", durable.Pending, 10*time.Second + time.Microsecond, "acme", "", 0, false},
			{"delivered", durable.Delivered, null, "acme", "", 0, false},
			{"dead", durable.Dead, null, "acme", "", 0, false},
			{"dead and due soon", durable.Dead, time.Second, "acme", "", 0, false},
			{"paused", durable.Pending, null, "acme", pause("acme"), 0, false},
			{"paused and due soon", durable.Pending, time.Second, "acme", pause("acme"), 0, false},
			{"paused in another tenant", durable.Pending, null, "acme", pause("globex"), 1, false},
			{"another tenant's worker", durable.Pending, null, "globex", "", 0, false},
			{"a worker of no tenant that there is", durable.Pending, null, "nobody", "", 0, false},
			{"gone", durable.Pending, null, "acme", `DELETE FROM event_deliveries`, 0, false},
		} {
			for _, table := range []string{"event_deliveries", "processed_events", "loam_pauses"} {
				rig.Exec(t, db, `DELETE FROM `+table)
			}
			r.Publish("acme", paid, nil)
			id := r.Row("acme", "mailer").ID
			r.Wakeups.Clear()
			due := database.At(r.Clock.Now().Truncate(time.Microsecond).Add(tc.due))
			if tc.due == null {
				due = database.Time{}
			}
			rig.Exec(t, db, `UPDATE event_deliveries SET status = $1, next_attempt_at = $2`, tc.status, due)
			if tc.prepare != "" {
				rig.Exec(t, db, tc.prepare)
			}
			before := allRows(t, db)
			runs = 0
			if err := r.Deliveries.Deliver(r.Ctx(tc.worker), id); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			if runs != tc.runs {
				t.Errorf("%s: %d runs, want %d", tc.name, runs, tc.runs)
			}
			if after := allRows(t, db); tc.runs == 0 && after != before {
				t.Errorf("%s: something was changed:\n%s\n%s", tc.name, before, after)
			}
			woken := r.Wakeups.All()
			if !tc.putBack {
				if len(woken) != 0 {
					t.Errorf("%s: wake-ups %v", tc.name, woken)
				}
				continue
			}
			if len(woken) != 1 || len(woken[0].IDs) != 1 || woken[0].IDs[0] != id {
				t.Fatalf("%s: put back as %v", tc.name, woken)
			}
			if at := woken[0].At; at.Before(due.Time) || at.Sub(due.Time) >= time.Millisecond || at.Nanosecond()%1e6 != 0 {
				t.Errorf("%s: put back for %v, want %v rounded up to the millisecond", tc.name, at, due)
			}
		}
	})
}

// contract: D-07, J-01. A worker whose clock is behind puts the wake-up back, and so runs the row without a sweep.
// model: 24
func TestAnEarlyWakeupIsPutBack(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		result := errors.New("no")
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return result })
		behind, _ := process(t, r, knows(r), off(r, -2*time.Second))
		r.Publish("acme", paid, nil)
		r.Work()
		result = nil
		r.Clock.Add(time.Minute + time.Millisecond)
		for early := range 2 { // now, and again after a second
			w, ok := r.Wakeups.Next(r.Clock.Now())
			if behind.Deliver(w); !ok || r.Row("acme", "mailer").Status != durable.Pending {
				t.Fatalf("wake-up %d: %v, %+v", early, ok, r.Row("acme", "mailer"))
			}
			r.Clock.Add(time.Second)
		}
		if n := behind.Work(); n != 1 || r.Row("acme", "mailer").Status != durable.Delivered {
			t.Errorf("%d wake-ups, in the end %+v", n, r.Row("acme", "mailer"))
		}
	})
}

// contract: S-02, S-04. Due is the oldest due first, and goes on after the cursor; what is not due, final, paused or under a
// live claim is left out. It changes nothing.
func TestDue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		keys := []string{"second", "third", "first", "last", "early", "dead", "delivered", "paused", "live", "over", "done"}
		for _, key := range keys {
			r.Registry.RegisterFunc(key, paid, func(context.Context, events.Event) error { return nil })
		}
		r.Publish("acme", paid, nil)
		r.Publish("globex", paid, nil)
		now := r.Clock.Now().Truncate(time.Microsecond)
		set := func(key, status string, due time.Time) {
			rig.Exec(t, db, `UPDATE event_deliveries SET status = $1, next_attempt_at = $2 WHERE tenant_id = 'acme' AND subscriber_key = $3`,
				status, database.At(due), key)
		}
		// Those without a time are due since their capture, a minute ago.
		r.Clock.Add(time.Minute)
		set("first", "pending", now.Add(-time.Hour))
		set("last", "pending", now.Add(time.Minute)) // equal to now
		set("early", "pending", now.Add(time.Minute+time.Microsecond))
		set("dead", "dead", time.Time{})
		set("delivered", "delivered", now)
		rig.Exec(t, db, `INSERT INTO loam_pauses VALUES ('acme', 'paused', '2026-01-01'), ('globex', 'first', '2026-01-01')`)
		nowMS := r.Clock.Now().UnixMilli()
		ledger := func(key, status string, lease int64) {
			rig.Exec(t, db, `INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, $2, $3, $3, 'x', NULL
				FROM event_deliveries WHERE tenant_id = 'acme' AND subscriber_key = $1`, key, status, lease)
		}
		ledger("live", "in_progress", nowMS-9_999) // may be taken over in a millisecond
		ledger("over", "in_progress", nowMS-10_000)
		ledger("done", "done", nowMS+60_000)
		before := allRows(t, db)

		want := []string{"first", "second", "third", "over", "done", "last"}
		for _, size := range []int{1, 2, 5, 6, 100} {
			var got []string
			var at durable.Cursor
			for {
				refs, next, err := r.Deliveries.Due(r.Ctx("acme"), r.Clock.Now(), at, size)
				if err != nil {
					t.Fatal(err)
				}
				for _, ref := range refs {
					got = append(got, ref.Key)
				}
				if at = next; len(refs) < size {
					break
				}
				if len(got) > len(keys) {
					t.Fatalf("by pages of %d it has no end: %v", size, got)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("by pages of %d: %v, want %v", size, got, want)
			}
		}
		if after := allRows(t, db); after != before {
			t.Errorf("Due changed something:\n%s\n%s", before, after)
		}
	})
}

// contract: T-03. Every method that reads or writes deliveries of a tenant fails without one, before it has asked the database.
// A new method must be entered here.
func TestEveryMethodNeedsATenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return nil })
		r.Publish("acme", paid, nil)
		row, d, now := r.Row("acme", "mailer"), r.Deliveries, r.Clock.Now()
		claim := ledger.Claim{Key: ledger.Key{Tenant: "acme", EventID: row.EventID, Handler: "mailer"}}
		scoped := map[string]func(ctx context.Context) error{
			"Deliver":      func(ctx context.Context) error { return d.Deliver(ctx, row.ID) },
			"DeliverAlone": func(ctx context.Context) error { return d.DeliverAlone(ctx, row.ID) },
			"Redeliver":    func(ctx context.Context) error { return d.Redeliver(ctx, row.ID) },
			"Due": func(ctx context.Context) error {
				_, _, err := d.Due(ctx, now, durable.Cursor{}, 10)
				return err
			},
			"Claimed": func(ctx context.Context) error {
				_, err := d.Claimed(ctx, now, []ledger.Claim{claim})
				return err
			},
			"List": func(ctx context.Context) error {
				_, err := d.List(ctx, durable.Query{})
				return err
			},
			"Get": func(ctx context.Context) error {
				_, err := d.Get(ctx, row.ID)
				return err
			},
			"Backlog": func(ctx context.Context) error {
				_, _, err := d.Backlog(ctx, now)
				return err
			},
			"ParkRemoved": func(ctx context.Context) error {
				_, err := d.ParkRemoved(ctx)
				return err
			},
			"Counts": func(ctx context.Context) error {
				_, err := d.Counts(ctx)
				return err
			},
			"Inspect": func(ctx context.Context) error {
				_, err := d.Inspect(ctx, row.ID)
				return err
			},
			"Page": func(ctx context.Context) error {
				_, err := d.Page(ctx, durable.PageQuery{Status: durable.Dead})
				return err
			},
			"RedeliverSeen": func(ctx context.Context) error { return d.RedeliverSeen(ctx, row.ID, row.UpdatedAt) },
		}
		exempt := map[string]string{
			"Capture": "an event without a tenant stores nothing, and is no error (T-02)", "CaptureTx": "as Capture",
			"CaptureAll": "of events that were accepted before, each named with its tenant", "CaptureFor": "as CaptureAll",
			"HasSubscriber": "reads loam_subscribers only",
			"Wake":          "inserts wake-ups only, for the tenant that it is given",
			"Renew":         "of the process's own claims, each named with its tenant", "Running": "of this process's memory",
			"Announce": "of the process's own keys", "Explain": "reads loam_subscribers only",
			"SetClockOff": "of this process's memory", "TenantsPending": "crosses tenants on purpose: it finds those that are gone",
			"Stop": "of this process", "Cancel": "of this process", "Wait": "of this process",
		}
		asked := 0
		faults.Before(func(dbtest.Op) error {
			asked++
			return nil
		})
		for m := range reflect.TypeFor[*durable.Deliveries]().Methods() {
			call := scoped[m.Name]
			if (call == nil) == (exempt[m.Name] == "") {
				t.Errorf("%s must be in one of the two tables", m.Name)
			}
			if call == nil {
				continue
			}
			for _, ctx := range []context.Context{t.Context(), tenant.With(t.Context(), ""), tenant.WithActor(t.Context(), "acme")} {
				if err := call(ctx); !errors.Is(err, tenant.ErrMissingTenant) {
					t.Errorf("%s without a tenant: %v", m.Name, err)
				}
			}
		}
		if asked != 0 {
			t.Errorf("%d statements without a tenant", asked)
		}
	})
}

// contract: T-05, J-02. From the context of another tenant a delivery is not found: not read, not run, not found due.
func TestAnotherTenantsDeliveryIsNotFound(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			t.Error("run for another tenant")
			return nil
		})
		r.Publish("acme", paid, nil)
		row := r.Row("acme", "mailer")
		r.Wakeups.Clear()
		before, other := allRows(t, db), r.Ctx("globex")
		unchanged := func() {
			t.Helper()
			if after := allRows(t, db); after != before || len(r.Wakeups.All()) != 0 {
				t.Errorf("something was changed:\n%s\n%s", before, after)
			}
		}
		if _, err := r.Deliveries.Get(other, row.ID); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		if rows, err := r.Deliveries.List(other, durable.Query{}); len(rows) != 0 || err != nil {
			t.Errorf("List: %v, %v", rows, err)
		}
		if err := errors.Join(r.Deliveries.Deliver(other, row.ID), r.Deliveries.DeliverAlone(other, row.ID)); err != nil {
			t.Errorf("Deliver: %v", err)
		}
		if refs, _, err := r.Deliveries.Due(other, r.Clock.Now(), durable.Cursor{}, 10); len(refs) != 0 || err != nil {
			t.Errorf("Due: %v, %v", refs, err)
		}
		unchanged()
		crash(t, r, row.ID)
		before = allRows(t, db)
		claim := ledger.Claim{Key: ledger.Key{Tenant: "acme", EventID: row.EventID, Handler: "mailer"}}
		if rows, err := r.Deliveries.Claimed(other, r.Clock.Now(), []ledger.Claim{claim}); len(rows) != 0 || err != nil {
			t.Errorf("Claimed: %v, %v", rows, err)
		}
		if rows, err := r.Deliveries.Claimed(r.Ctx("acme"), r.Clock.Now(), []ledger.Claim{claim}); rows[claim.Key].ID != row.ID || err != nil {
			t.Errorf("Claimed by its tenant: %v, %v", rows, err)
		}
		unchanged()
	})
}
