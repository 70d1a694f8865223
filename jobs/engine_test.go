package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// newEngine makes an engine with the tenant acme.
func newEngine(t *testing.T, db *database.DB, reg *durable.Registry, change func(*loam.Config)) *loam.Engine {
	t.Helper()
	cfg := loam.Config{DB: db, Registry: reg, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	engine, err := loam.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.AddTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	return engine
}

func startEngine(t *testing.T, engine *loam.Engine) {
	t.Helper()
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// One publish with three subscribers of one queue and one of another inserts a job for each queue, with the rows' ids.
//
// contract: D-04, J-01
func TestOneJobForAQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		handle := func(context.Context, events.Event) error { return nil }
		for _, key := range []string{"a", "b", "c"} {
			reg.RegisterFunc(key, "shop.", handle)
		}
		reg.RegisterFunc("d", "shop.", handle, durable.WithQueue("slow"))
		engine := newEngine(t, db, reg, nil)
		ctx := tenant.With(t.Context(), "acme")
		if err := engine.Publish(ctx, "shop.order.paid", events.Payload{"secret": 42}); err != nil {
			t.Fatal(err)
		}
		rows, err := engine.Deliveries(ctx, durable.Query{})
		if err != nil || len(rows) != 4 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for queue, want := range map[string]string{
			"loam": `{"tenant_id":"acme","delivery_ids":["` + rows[0].ID + `","` + rows[1].ID + `","` + rows[2].ID + `"]}`,
			"slow": `{"tenant_id":"acme","delivery_ids":["` + rows[3].ID + `"]}`,
		} {
			if n := count(t, db, `kind = 'loam_event_delivery' AND state = 'available' AND queue = $1 AND `+same(db, "args", 2), queue, want); n != 1 {
				t.Errorf("%d jobs in %s with %s", n, queue, want)
			}
		}
		if n := count(t, db, `true`); n != 2 {
			t.Errorf("%d jobs, want 2", n)
		}
	})
}

// A failure's wake-up is inserted with the outcome, for the time in the row rounded up to River's millisecond.
//
// contract: D-09, J-01
func TestWakeUpOfAFailure(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error { return errors.New("no") })
		engine := newEngine(t, db, reg, func(c *loam.Config) {
			c.Now = func() time.Time { return time.Now().Truncate(time.Millisecond).Add(456 * time.Microsecond) }
		})
		ctx := tenant.With(t.Context(), "acme")
		if err := engine.Publish(ctx, "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		startEngine(t, engine)
		var row durable.EventDelivery
		until(t, "failed", func() bool {
			rows, err := engine.Deliveries(ctx, durable.Query{})
			if err != nil || len(rows) != 1 {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			row = rows[0]
			return row.Attempts == 1
		})
		next := row.NextAttemptAt.Time
		if next.Nanosecond()%int(time.Millisecond) != 456_000 || next.Before(time.Now().Add(50*time.Second)) {
			t.Fatalf("the next attempt is at %v", next)
		}
		want := next.Truncate(time.Millisecond).Add(time.Millisecond)
		var id string
		var at database.Time
		rig.Scan(t, db, `SELECT args -> 'delivery_ids' ->> 0, scheduled_at FROM river_job
			WHERE kind = 'loam_event_delivery' AND state = 'scheduled'`, nil, &id, &at)
		if id != row.ID || !at.Equal(want) {
			t.Errorf("the wake-up of %s is at %s, want %s at %s", id, at, row.ID, want)
		}
	})
}

// Jobs of a tenant, or of rows, that are not there or are another tenant's run nothing, and are done with at once.
//
// contract: J-02, T-05
func TestJobsOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		ran := make(chan string, 100)
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(_ context.Context, e events.Event) error {
			ran <- e.ID
			return nil
		})
		engine := newEngine(t, db, reg, func(c *loam.Config) { c.SweepEvery = time.Hour })
		ctx := tenant.With(t.Context(), "acme")
		if err := engine.Publish(ctx, "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		rows, err := engine.Deliveries(ctx, durable.Query{})
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		// A row that is not due, so that the sweep of the start leaves it alone too.
		rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = '2100-01-01 00:00:00.000000'`)
		rig.Exec(t, db, `DELETE FROM river_job`)
		j, _ := newJobs(t, db)
		gone := "01a22e03-1bd0-77bd-bf00-d92b8ae618ed"
		enqueue(t, db, j,
			durable.Wakeup{Tenant: "acme", IDs: []string{gone}, Queue: durable.DefaultQueue},
			durable.Wakeup{Tenant: "acme", IDs: []string{gone, "no id at all", ""}, Queue: durable.DefaultQueue},
			durable.Wakeup{Tenant: "acme", IDs: []string{gone}, Queue: durable.SuspectQueue},
			durable.Wakeup{Tenant: "nobody", IDs: []string{gone}, Queue: durable.DefaultQueue},
			durable.Wakeup{Tenant: "nobody", IDs: []string{rows[0].ID}, Queue: durable.DefaultQueue},
		)
		rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = NULL, tenant_id = 'removed'`)
		enqueue(t, db, j, durable.Wakeup{Tenant: "acme", IDs: []string{rows[0].ID}, Queue: durable.DefaultQueue})
		startEngine(t, engine)
		const ours = `kind = 'loam_event_delivery'`
		until(t, "all completed", func() bool { return count(t, db, ours+` AND state = 'completed'`) == 6 })
		if n := count(t, db, ours+` AND (attempt <> 1 OR errors IS NOT NULL)`); n != 0 || count(t, db, ours) != 6 {
			t.Errorf("%d jobs failed; %d in all", n, count(t, db, ours))
		}
		if len(ran) != 0 {
			t.Errorf("%d handlers ran", len(ran))
		}
	})
}

// A wait below a second is kept: the second run never comes before the time in the row, and at most as much later as
// River's scheduler takes.
//
// contract: D-07, D-09
// scenario: B167
func TestShortWaits(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n, wait = 20, 250 * time.Millisecond
		var mu sync.Mutex
		runs := map[string][]time.Time{}
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			runs[e.ID] = append(runs[e.ID], time.Now())
			if len(runs[e.ID]) == 1 {
				return errors.New("no")
			}
			return nil
		}, durable.WithBackoff(wait))
		engine := newEngine(t, db, reg, nil)
		startEngine(t, engine)
		ctx := tenant.With(t.Context(), "acme")
		for range n {
			if err := engine.Publish(ctx, "shop.order.paid", nil); err != nil {
				t.Fatal(err)
			}
		}
		var rows []durable.EventDelivery
		until(t, "all delivered", func() bool {
			var err error
			if rows, err = engine.Deliveries(ctx, durable.Query{Status: durable.Delivered}); err != nil {
				t.Fatal(err)
			}
			return len(rows) == n
		})
		for _, row := range rows {
			h, run := row.History(), runs[row.EventID]
			if len(h) != 1 || len(run) != 2 || row.Attempts != 1 {
				t.Errorf("%d runs, %d failures in the history, %d attempts", len(run), len(h), row.Attempts)
				continue
			}
			due := h[0].At.Add(wait)
			if early := due.Sub(run[1]); early > 0 {
				t.Errorf("a run came %v before it was due", early)
			}
			// River's scheduler takes 5 s, and a slow machine its time. Without the wake-up it would be the sweep, after minutes.
			if late := run[1].Sub(due); late > 30*time.Second {
				t.Errorf("a run came %v late", late)
			}
		}
	})
}
