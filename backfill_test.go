package loam_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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

// past makes an engine by the clock, and publishes n events of acme a second apart, and as many of globex.
func past(t *testing.T, db *database.DB, clock *rig.Clock, n int, change func(*loam.Config)) *loam.Engine {
	t.Helper()
	reg := durable.NewRegistry()
	reg.RegisterFunc("first", "shop.", func(context.Context, events.Event) error { return nil })
	cfg := loam.Config{DB: db, Registry: reg, Now: clock.Now, Logger: slog.New(slog.DiscardHandler), KeepEvents: true, MaxClockSkew: -1}
	if change != nil {
		change(&cfg)
	}
	engine, err := loam.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"acme", "globex"} {
		if err := engine.AddTenant(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		for _, id := range []string{"acme", "globex"} {
			if err := engine.Publish(tenant.With(t.Context(), id), "shop.order.paid", events.Payload{"n": i}); err != nil {
				t.Fatal(err)
			}
		}
		clock.Add(time.Second)
	}
	return engine
}

// ofKey counts the deliveries of a subscriber, by tenant.
func ofKey(t *testing.T, db *database.DB, key string) (acme, globex int) {
	t.Helper()
	rig.Scan(t, db, `SELECT count(CASE WHEN tenant_id = 'acme' THEN 1 END), count(CASE WHEN tenant_id = 'globex' THEN 1 END)
		FROM event_deliveries WHERE subscriber_key = $1`, []any{key}, &acme, &globex)
	return acme, globex
}

// later is an engine of the same database that has a second subscriber.
func withSecond(t *testing.T, db *database.DB, clock *rig.Clock, pattern string, opts ...durable.Option) *loam.Engine {
	t.Helper()
	reg := durable.NewRegistry()
	reg.RegisterFunc("second", pattern, func(context.Context, events.Event) error { return nil }, opts...)
	engine, err := loam.New(loam.Config{DB: db, Registry: reg, Now: clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// A backfill that is interrupted twice, by the end of its context and by the database, and called again, has given the new
// subscriber each of the tenant's past events once, and nobody else anything.
//
// contract: D-19
func TestBackfillThatIsInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		const n = 5000
		clock := rig.NewClock()
		start := clock.Now()
		past(t, db, clock, 1, nil)
		rig.Exec(t, db, `WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO event_queue (event_id, tenant_id, event_type, payload, status, created_at)
			SELECT '00000000-0000-7000-8000-' || substr('00000000000' || i, length('00000000000' || i) - 11), t.id, 'shop.order.paid',
			       '{"actor_id":null,"n":' || i || ',"tenant_id":"' || t.id || '"}', 'done', $2
			  FROM n CROSS JOIN loam_tenants AS t`, n, database.At(clock.Now()))
		clock.Add(time.Second)
		rig.Exec(t, db, `INSERT INTO loam_subscribers (key, pattern, queue, first_seen, last_seen) VALUES ('first', 'shop.', 'loam', $1, $1)`,
			database.At(clock.Now())) // another process has it
		engine := withSecond(t, db, clock, "shop.")

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, err := engine.Backfill(ctx, "second", "acme", start, time.Time{}, loam.OnProgress(func(p loam.BackfillProgress) {
			if p.Deliveries >= 1000 {
				cancel()
			}
		}))
		if !errors.Is(err, context.Canceled) || first.Deliveries != 1000 || first.Events != 1000 {
			t.Fatalf("interrupted by its context: %+v, %v", first, err)
		}
		broken, batches := errors.New("broken"), 0
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				if batches++; batches == 5 {
					return broken
				}
			}
			return nil
		})
		second, err := engine.Backfill(t.Context(), "second", "acme", start, time.Time{})
		if !errors.Is(err, broken) || second.Deliveries != 1000 || second.Events != 2000 {
			t.Fatalf("interrupted by the database: %+v, %v", second, err)
		}
		third, err := engine.Backfill(t.Context(), "second", "acme", second.Through, time.Time{})
		if err != nil || third.Deliveries != n-2000 {
			t.Fatalf("to its end: %+v, %v", third, err)
		}
		again, err := engine.Backfill(t.Context(), "second", "acme", start, time.Time{})
		if err != nil || again.Deliveries != 0 || again.Events != n {
			t.Errorf("once more: %+v, %v", again, err)
		}
		if acme, globex := ofKey(t, db, "second"); acme != n || globex != 0 {
			t.Errorf("acme has %d deliveries, globex %d; want %d and 0", acme, globex, n)
		}
		if acme, globex := ofKey(t, db, "first"); acme != 1 || globex != 1 {
			t.Errorf("the other subscriber has %d and %d deliveries, want what it had", acme, globex)
		}
		var woken int
		rig.Scan(t, db, `SELECT count(*) FROM river_job WHERE kind = 'loam_event_delivery'`, nil, &woken)
		if woken < 2+n/100 || woken > 2+n/100+2 { // a batch that was begun before has less
			t.Errorf("%d wake-ups, want about one for each hundred", woken)
		}
	})
}

// The range is what was published at from or later and before to; the pattern and the aliases are the subscriber's. Events are
// kept in the direct mode only when that is asked for.
//
// contract: D-19, D-21
func TestBackfillRange(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		clock := rig.NewClock()
		start := clock.Now()
		engine := past(t, db, clock, 10, nil)
		if err := engine.Publish(tenant.With(t.Context(), "acme"), "shop.cart.filled", nil); err != nil {
			t.Fatal(err)
		}
		clock.Add(time.Second)
		second := withSecond(t, db, clock, "shop.order.", durable.WithAliases("old"))
		rig.Exec(t, db, `UPDATE event_deliveries SET subscriber_key = 'old' WHERE tenant_id = 'acme' AND CAST(payload AS text) LIKE '%"n":4,%'`)
		for _, c := range []struct {
			from, to           time.Time
			events, deliveries int
		}{
			{start.Add(2 * time.Second), start.Add(5 * time.Second), 3, 2}, // 2, 3, and 4 which the alias has
			{time.Time{}, time.Time{}, 11, 7},                              // 0, 1, 5 to 9
		} {
			p, err := second.Backfill(t.Context(), "second", "acme", c.from, c.to)
			if err != nil || p.Events != c.events || p.Deliveries != c.deliveries || p.Refused != 0 {
				t.Errorf("%v to %v: %+v, %v; want %d events and %d deliveries", c.from, c.to, p, err, c.events, c.deliveries)
			}
		}
		rows, err := second.Deliveries(tenant.With(t.Context(), "acme"), durable.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range rows {
			if row.SubscriberKey == "second" {
				got = append(got, strings.TrimPrefix(row.Payload, `{"actor_id":null,"n":`)[:1])
			}
		}
		slices.Sort(got)
		if want := []string{"0", "1", "2", "3", "5", "6", "7", "8", "9"}; !slices.Equal(got, want) {
			t.Errorf("it has been given %v, want %v", got, want)
		}
	})
	t.Run("not kept", func(t *testing.T) {
		t.Parallel()
		dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
			clock := rig.NewClock()
			past(t, db, clock, 2, func(c *loam.Config) { c.KeepEvents = false })
			p, err := withSecond(t, db, clock, "shop.").Backfill(t.Context(), "second", "acme", time.Time{}, time.Time{})
			if err != nil || p != (loam.BackfillProgress{Through: p.Through}) {
				t.Errorf("%+v, %v", p, err)
			}
		})
	})
}

// What is wrong with a backfill is said before anything is written.
//
// contract: D-19
func TestBackfillErrors(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		clock := rig.NewClock()
		engine := past(t, db, clock, 1, nil)
		now := clock.Now()
		for _, c := range []struct {
			key, tenant string
			from, to    time.Time
			want        string
		}{
			{"nobody", "acme", time.Time{}, now, `"nobody": loam: no such durable subscriber`},
			{"first", "", time.Time{}, now, "it is empty"},
			{"first", "acme", now, now, "the range is empty"},
			{"first", "acme", now.Add(time.Hour), time.Time{}, "the range is empty"},
		} {
			p, err := engine.Backfill(t.Context(), c.key, c.tenant, c.from, c.to)
			if err == nil || !strings.Contains(err.Error(), c.want) || p != (loam.BackfillProgress{}) {
				t.Errorf("%v: %+v, %v", c, p, err)
			}
		}
		now = clock.Now()
		for alias, engine := range map[string]*loam.Engine{
			"of this process": withSecond(t, db, clock, "shop.", durable.WithAliases("old")), "of another": engine,
		} {
			rig.Exec(t, db, `DELETE FROM loam_subscribers`)
			rig.Exec(t, db, `INSERT INTO loam_subscribers (key, pattern, queue, aliases, first_seen, last_seen)
				VALUES ('old', 'shop.', 'loam', '[]', $1, $1), ('new', 'shop.', 'loam', '["old"]', $1, $1)`, database.At(now))
			if _, err := engine.Backfill(t.Context(), "old", "acme", time.Time{}, now); !errors.Is(err, loam.ErrUnknownSubscriber) {
				t.Errorf("an alias %s: %v", alias, err)
			}
		}
		rig.Exec(t, db, `UPDATE event_queue SET payload = '{bad'`)
		if p, err := engine.Backfill(t.Context(), "first", "acme", time.Time{}, now); err != nil || p.Refused != 1 || p.Events != 0 {
			t.Errorf("a row that cannot be read: %+v, %v", p, err)
		}
		rig.Exec(t, db, `UPDATE event_queue SET payload = '{"tenant_id":"acme","actor_id":null}' WHERE tenant_id = 'acme'`)
		rig.Exec(t, db, `DELETE FROM loam_tenants WHERE id = 'acme'`)
		rig.Exec(t, db, `DELETE FROM event_deliveries`)
		if _, err := engine.Backfill(t.Context(), "first", "acme", time.Time{}, time.Time{}); !errors.Is(err, durable.ErrUnknownTenant) {
			t.Errorf("a tenant that is gone: %v", err)
		}
		if acme, _ := ofKey(t, db, "first"); acme != 0 {
			t.Errorf("%d deliveries", acme)
		}
	})
}
