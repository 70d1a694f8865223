package loam_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

const (
	eventID = "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495"
	paid    = "shop.order.paid"
)

// contract: E-10. The same id, name and payload again adds nothing for who has it, whatever became of the row; inline
// subscribers run again. With anything else it is ErrIDReused, and nothing is stored and nobody called.
func TestTheSameIDAgain(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		inline := 0
		engine.Subscribe("", func(_ context.Context, e events.Event) error {
			if inline++; e.ID != eventID {
				t.Errorf("an inline subscriber got the id %s", e.ID)
			}
			return nil
		})
		id := events.WithID(eventID)
		ctx := tenant.WithActor(inTenant(t), "u1")
		for i, spelled := range []string{eventID, eventID, strings.ToUpper(eventID), "urn:uuid:" + eventID} {
			if err := engine.Publish(ctx, paid, events.Payload{"order": uint8(7)}, events.WithID(spelled)); err != nil {
				t.Fatal(err)
			}
			if inline != i+1 {
				t.Errorf("publish %d: the inline subscriber ran %d times", i+1, inline)
			}
		}
		for _, status := range []string{"delivered", "dead"} {
			rig.Exec(t, db, `UPDATE event_deliveries SET status = $1`, status)
			if err := engine.Publish(ctx, paid, events.Payload{"order": 7}, id); err != nil || count(t, db, "status = $1", status) != 1 {
				t.Errorf("again when it is %s: %v", status, err)
			}
		}
		stored(t, db, "after the same six times", 1, 1)

		inline = 0
		for what, publish := range map[string]func() error{
			"another name":    func() error { return engine.Publish(ctx, "shop.order.made", events.Payload{"order": 7}, id) },
			"another payload": func() error { return engine.Publish(ctx, paid, events.Payload{"order": 8}, id) },
			"another type":    func() error { return engine.Publish(ctx, paid, events.Payload{"order": 7.0}, id) },
			"one key more":    func() error { return engine.Publish(ctx, paid, events.Payload{"order": 7, "x": nil}, id) },
			"no payload":      func() error { return engine.Publish(ctx, paid, nil, id) },
			"another actor": func() error {
				return engine.Publish(tenant.WithActor(ctx, "u2"), paid, events.Payload{"order": 7}, id)
			},
		} {
			if err := publish(); !errors.Is(err, events.ErrIDReused) || !strings.Contains(err.Error(), eventID) {
				t.Errorf("%s: got %v, want ErrIDReused with the id", what, err)
			}
		}
		if stored(t, db, "after other events under the id", 1, 1); inline != 0 {
			t.Errorf("inline subscribers ran %d times for them", inline)
		}
	})
}

// contract: E-10. Ids are per tenant.
func TestIDsArePerTenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		if err := engine.AddTenant(t.Context(), "globex"); err != nil {
			t.Fatal(err)
		}
		for i, id := range []string{"acme", "globex"} {
			ctx := tenant.With(t.Context(), id)
			if err := engine.Publish(ctx, paid, events.Payload{"order": i}, events.WithID(eventID)); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			if rows := deliveries(ctx, t, engine); len(rows) != 1 || rows[0].EventID != eventID || rows[0].TenantID != id {
				t.Errorf("%s has %+v", id, rows)
			}
		}
	})
}

// contract: E-10. A subscriber that came later gets the event that is published again, and only that one.
func TestTheSameIDForANewSubscriber(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("old", "shop.", succeed)
		engine := newEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), paid, nil, events.WithID(eventID)); err != nil {
			t.Fatal(err)
		}
		reg.RegisterFunc("new", "shop.", succeed)
		if err := engine.Publish(inTenant(t), paid, nil, events.WithID(eventID)); err != nil {
			t.Fatal(err)
		}
		rows, jobs := deliveries(inTenant(t), t, engine), wakeJobs(t, db)
		if len(rows) != 2 || rows[1].SubscriberKey != "new" || len(jobs) != 2 {
			t.Fatalf("%d rows, %d jobs: %+v", len(rows), len(jobs), rows)
		}
		if ids := jobs[1].ids(); len(ids) != 1 || ids[0] != rows[1].ID {
			t.Errorf("the second job wakes %q, want %s alone", ids, rows[1].ID)
		}
	})
}

// contract: E-10. An edited row is compared by its original payload.
func TestTheSameIDAfterAnEdit(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		publish := func(order int) error {
			return engine.Publish(inTenant(t), paid, events.Payload{"order": order}, events.WithID(eventID))
		}
		if err := publish(7); err != nil {
			t.Fatal(err)
		}
		edited := strings.Replace(deliveries(inTenant(t), t, engine)[0].Payload, "7", "8", 1)
		rig.Exec(t, db, `UPDATE event_deliveries SET original_payload = payload, payload = $1`, edited)
		if err := publish(7); err != nil {
			t.Errorf("the original: %v", err)
		}
		if err := publish(8); !errors.Is(err, events.ErrIDReused) {
			t.Errorf("the edited one: got %v, want ErrIDReused", err)
		}
		stored(t, db, "afterwards", 1, 1)
	})
}

// contract: E-10. The commit went through and its answer was lost: the publisher gets an error, and publishing again with
// its id adds no row.
// scenario: B012
func TestTheSameIDAfterALostAnswer(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		errLost := errors.New("database is locked")
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				return errLost
			}
			return nil
		})
		err := engine.Publish(inTenant(t), paid, nil, events.WithID(eventID))
		faults.After(nil)
		if !errors.Is(err, errLost) {
			t.Errorf("got %v", err)
		}
		stored(t, db, "after the lost answer", 1, 1)
		if err := engine.Publish(inTenant(t), paid, nil, events.WithID(eventID)); err != nil {
			t.Errorf("again: %v", err)
		}
		stored(t, db, "after publishing again", 1, 1)
	})
}

// contract: E-10, L-05. When the row is gone only the ledger remembers: the event makes a row again, whose handler is
// skipped. An event that nobody wanted is not remembered.
func TestTheSameIDAfterRetention(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var runs atomic.Int64
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", func(context.Context, events.Event) error {
			runs.Add(1)
			return nil
		})
		engine := startEngine(t, db, reg)
		id := events.WithID(eventID)
		if err := engine.Publish(inTenant(t), "nobody.wants.this", nil, id); err != nil {
			t.Fatal(err)
		}
		for round := 1; round <= 2; round++ {
			if err := engine.Publish(inTenant(t), paid, nil, id); err != nil {
				t.Fatal(err)
			}
			until(t, 30*time.Second, "delivered", func() bool { return count(t, db, "status = 'delivered'") == 1 })
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	})
}

// contract: E-10. Each publish without an id is an event of its own, with a UUIDv7.
func TestIDsOfOurs(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		for range 3 {
			if err := engine.Publish(inTenant(t), paid, nil); err != nil {
				t.Fatal(err)
			}
		}
		last := ""
		for _, r := range deliveries(inTenant(t), t, engine) {
			if id, err := uuid.Parse(r.EventID); err != nil || id.Version() != 7 || r.EventID <= last {
				t.Errorf("the id %s (%v) after %q", r.EventID, err, last)
			}
			last = r.EventID
		}
		stored(t, db, "after three", 3, 3)
	})
}
