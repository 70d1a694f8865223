package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// contract: T-04. A handler has the delivery's tenant in its context and no actor, neither the publisher's nor the
// worker's; the publisher's is data on the event.
func TestHandlerSeesTheTenantAndNoActor(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var tenantID, actorID string
		var event events.Event
		r.Registry.RegisterFunc("mailer", "billing.", func(ctx context.Context, e events.Event) error {
			tenantID, actorID, event = tenant.From(ctx), tenant.Actor(ctx), e
			return nil
		})
		for _, actor := range []string{"user-7", ""} {
			if err := captureOn(tenant.WithActor(r.Ctx("acme"), actor), r.Deliveries, "billing.invoice.paid", nil); err != nil {
				t.Fatal(err)
			}
			w, _ := r.Wakeups.Next(r.Clock.Now())
			if err := r.Deliveries.Deliver(tenant.WithActor(r.Ctx("acme"), "worker"), w.IDs...); err != nil {
				t.Fatal(err)
			}
			if tenantID != "acme" || actorID != "" {
				t.Errorf("the handler's tenant is %q and its actor %q, want acme and none", tenantID, actorID)
			}
			if event.TenantID != "acme" || event.ActorID != actor || event.Payload["tenant_id"] != "acme" {
				t.Errorf("the event is %+v, want the actor %q", event, actor)
			}
			if want := map[bool]any{true: nil, false: actor}[actor == ""]; event.Payload["actor_id"] != want {
				t.Errorf("the payload's actor is %v, want %v", event.Payload["actor_id"], want)
			}
		}
	})
}

// contract: E-13. Each subscriber has its own copy of the payload, and each retry the original; the stored one stays.
// scenario: B009
func TestPayloadIsTheSubscribersOwn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		want := events.Payload{"invoice_id": int64(42), "tenant_id": "acme", "actor_id": nil}
		var both sync.WaitGroup // run at once
		both.Add(2)
		meet := func(run int) {
			if run == 1 {
				both.Done()
				both.Wait()
			}
		}
		writes, reads := 0, 0
		r.Registry.RegisterFunc("writes", "billing.", func(_ context.Context, e events.Event) error {
			writes++
			meet(writes)
			if !maps.Equal(e.Payload, want) {
				t.Errorf("run %d sees %v, want %v", writes, e.Payload, want)
			}
			for n := range 1000 {
				e.Payload["invoice_id"], e.Payload["x"] = n, n
			}
			delete(e.Payload, "tenant_id")
			copy(e.JSON(), "xxxxxxxx")
			return codeError(writes)
		})
		r.Registry.RegisterFunc("reads", "billing.", func(_ context.Context, e events.Event) error {
			reads++
			meet(reads)
			for range 1000 {
				if !maps.Equal(e.Payload, want) {
					t.Errorf("the other subscriber sees %v", e.Payload)
					break
				}
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", events.Payload{"invoice_id": 42})
		stored := r.Row("acme", "writes").Payload
		for range 3 {
			r.Work()
			r.Clock.Add(time.Hour)
		}
		if writes != 3 || reads != 1 {
			t.Errorf("%d and %d runs, want 3 and 1", writes, reads)
		}
		if got := r.Row("acme", "writes").Payload; got != stored || got != `{"actor_id":null,"invoice_id":42,"tenant_id":"acme"}` {
			t.Errorf("stored is %s, and was %s", got, stored)
		}
	})
}

// contract: D-04, D-09. Subscribers of an event do not depend on each other: one that fails is retried alone.
// scenario: B005
func TestOneFailingSubscriber(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := map[string]int{}
		var mu sync.Mutex
		for _, key := range []string{"a", "b", "c"} {
			r.Registry.RegisterFunc(key, "billing.", func(context.Context, events.Event) error {
				mu.Lock()
				defer mu.Unlock()
				if runs[key]++; key == "b" && runs[key] <= 2 {
					return errors.New("no")
				}
				return nil
			})
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 5 {
			r.Work()
			r.Clock.Add(time.Hour)
		}
		if !maps.Equal(runs, map[string]int{"a": 1, "b": 3, "c": 1}) {
			t.Errorf("runs %v, want a 1, b 3, c 1", runs)
		}
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered {
				t.Errorf("%s is %s", row.SubscriberKey, row.Status)
			}
		}
	})
}

// publishAll captures n events in one transaction and loses their wake-ups.
func publishAll(t *testing.T, r *rig.Rig, n int, event func(n int) (tenantID string, p events.Payload)) {
	t.Helper()
	err := r.DB.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for i := range n {
			tenantID, p := event(i)
			e, err := events.New(tenant.With(ctx, tenantID), "billing.invoice.paid", p, rig.Limits)
			if err = errors.Join(err, r.Deliveries.CaptureTx(ctx, tx, e)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Wakeups.Clear()
}

// deliverAll runs the rows of the tenants, at most three in a call and all calls at once, and then what those hand on.
func deliverAll(r *rig.Rig, tenants ...string) {
	var wg sync.WaitGroup
	for _, id := range tenants {
		for rows := range slices.Chunk(r.Rows(id), 3) {
			w := durable.Wakeup{Tenant: id}
			for _, row := range rows {
				w.IDs = append(w.IDs, row.ID)
			}
			wg.Go(func() { r.Deliver(w) })
		}
	}
	wg.Wait()
	r.Work()
}

// contract: D-09. What always fails does not hold up what is younger, and follows its own schedule.
// scenario: B088
func TestPoisonDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 10 })
		r.Registry.RegisterFunc("mailer", "billing.", func(_ context.Context, e events.Event) error {
			if e.Payload["n"] == int64(0) {
				return errors.New("no")
			}
			return nil
		})
		publishAll(t, r, 101, func(n int) (string, events.Payload) { return "acme", events.Payload{"n": n} })
		start := r.Clock.Now()
		deliverAll(r, "acme")
		rows := r.Rows("acme")
		for n, row := range rows[1:] {
			if row.Status != durable.Delivered {
				t.Errorf("row %d is %s after the first pass", n+1, row.Status)
			}
		}
		if want := database.At(start.Add(time.Minute)); rows[0].Status != durable.Pending || rows[0].Attempts != 1 || rows[0].NextAttemptAt != want {
			t.Errorf("the oldest is %s, %d attempts, next at %v; want it pending until %v", rows[0].Status, rows[0].Attempts, rows[0].NextAttemptAt, want)
		}
		for range 4 {
			r.Clock.Add(2*time.Hour + time.Second)
			r.Work()
		}
		if row := r.Rows("acme")[0]; row.Status != durable.Dead || row.Attempts != 5 {
			t.Errorf("the oldest is %s after %d attempts, want it dead after 5", row.Status, row.Attempts)
		}
	})
}

// contract: D-05, D-08. What a handler publishes is captured once when it succeeds, whatever a sibling does, and does not
// leak into the next event.
// scenario: B004
func TestFollowUpOfASuccessfulHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var mu sync.Mutex
		runs := map[string]int{}
		count := func(key string) int {
			mu.Lock()
			defer mu.Unlock()
			runs[key]++
			return runs[key]
		}
		r.Registry.RegisterFunc("a", "billing.invoice.paid", func(ctx context.Context, _ events.Event) error {
			count("a")
			return captureOn(ctx, r.Deliveries, "mail.notice.made", nil)
		})
		r.Registry.RegisterFunc("b", "billing.invoice.paid", func(context.Context, events.Event) error {
			if count("b") == 1 {
				return errors.New("no")
			}
			return nil
		})
		r.Registry.RegisterFunc("notice", "mail.notice.made", func(context.Context, events.Event) error { count("notice"); return nil })
		r.Registry.RegisterFunc("unrelated", "shop.", func(context.Context, events.Event) error { count("unrelated"); return nil })
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 3 {
			r.Work()
			r.Clock.Add(time.Hour)
		}
		r.Publish("acme", "shop.order.placed", nil)
		r.Work()
		if want := map[string]int{"a": 1, "b": 2, "notice": 1, "unrelated": 1}; !maps.Equal(runs, want) {
			t.Errorf("runs %v, want %v", runs, want)
		}
		if row := r.Row("acme", "notice"); row.Status != durable.Delivered || row.TenantID != "acme" {
			t.Errorf("the follow-up is %+v", row)
		}
		if n := len(r.Rows("acme")); n != 4 {
			t.Errorf("%d rows, want 4", n)
		}
	})
}
