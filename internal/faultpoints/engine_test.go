package faultpoints_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
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

const (
	engineKills  = 20  // how often an engine is killed
	engineOps    = 300 // at one of so many operations
	engineEvents = 6
)

// contract: D-04, J-01, L-08, S-01. The same for the whole engine, River's statements included: it is killed at an operation of
// the database that was drawn by lot, from its start on, and a new one brings everything to its end.
func TestAnEngineKilledAtAnyOperation(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var tasks []task
		for range max(2, engineKills/every) {
			tasks = append(tasks, task{point{part: "engine", kind: "operation", n: 1 + rand.IntN(engineOps)}, kills{before}}) //nolint:gosec // a lot, no secret
		}
		empty := template(t, db.Dialect())
		sum := &summary{}
		sum.walk(t, 10, tasks, func() func(t *testing.T, k task) []finding {
			return func(t *testing.T, k task) []finding { return killEngine(t, empty, k.p.n) }
		})
		sum.print(t)
	})
}

// killEngine has an engine killed at its nth operation and another one go on, and returns what that has broken.
func killEngine(t *testing.T, empty dbtest.Place, n int) []finding {
	t.Helper()
	dir, at := t.TempDir(), dbtest.Copy(t, empty)
	died(t, order{Dir: dir, Place: at, Engine: true, N: n})
	if out, err := child(t, order{Dir: dir, Place: at, Engine: true}); err != nil {
		t.Fatalf("the second engine: %v\n%s", err, out)
	}
	db, _ := dbtest.OpenPlace(t, at)
	entries := openDiary(t, dir).entries(t)
	oks, succeeded := map[string]int{}, map[[2]string]int{}
	answered := map[string]bool{}
	for _, e := range entries {
		switch {
		case e.What == "published":
			answered[e.Event] = true
		case e.What == "end" && e.Result == "ok":
			succeeded[[2]string{e.Event, e.Key}]++
		}
	}
	var out []finding
	for _, row := range rig.Over(t, db, rig.NewClock()).Rows("acme") {
		oks[row.EventID]++
		k := [2]string{row.EventID, row.SubscriberKey}
		want := map[string]int{"ok": 0, "flaky": 1}[row.SubscriberKey]
		if row.Status != durable.Delivered || succeeded[k] == 0 {
			out = append(out, finding{lost, fmt.Sprintf("succeeded %d times: %s", succeeded[k], describe(&row))})
		}
		if succeeded[k] > 2 || row.Attempts != want || len(row.History()) != want {
			out = append(out, finding{stale, fmt.Sprintf("succeeded %d times: %s", succeeded[k], describe(&row))})
		}
	}
	for id := range answered {
		if oks[id] == 0 {
			out = append(out, finding{lost, "published, and not there: " + id})
		}
	}
	for id, n := range oks {
		if n != 2 {
			out = append(out, finding{lost, fmt.Sprintf("%s has %d deliveries, want 2", id, n)})
		}
	}
	return out
}

// runEngine is the child: an engine that publishes and is killed at an operation, or one that works until nothing is
// pending.
func runEngine(o order) (err error) {
	t := &childTB{}
	ctx := tenant.With(t.Context(), "acme")
	db, faults := dbtest.OpenPlace(t, o.Place)
	sound, _ := dbtest.OpenPlace(t, o.Place) // whose operations do not count
	d := openDiary(t, o.Dir)
	reg := durable.NewRegistry()
	for _, s := range subscribers[:2] {
		reg.RegisterFunc(s.key, s.pattern, func(ctx context.Context, e events.Event) error { return s.handle(ctx, nil, "", e) },
			durable.WithBackoff(50*time.Millisecond))
	}
	noted := func(ctx context.Context, row *durable.EventDelivery, next func(context.Context) error) error {
		err := next(context.WithValue(ctx, rowKey{}, row))
		e := entry{What: "end", Event: row.EventID, Key: row.SubscriberKey, Run: row.Runs, Result: "ok"}
		if err != nil {
			e.Result = err.Error()
		}
		return errors.Join(err, d.add(e))
	}
	engine, err := loam.New(loam.Config{
		DB: db, Registry: reg, Middleware: []durable.Middleware{noted}, Logger: slog.New(slog.DiscardHandler),
		Lease: time.Second, TakeoverMargin: 200 * time.Millisecond, RenewEvery: 200 * time.Millisecond, LostClaimsEvery: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	var ops atomic.Int64
	faults.Before(func(dbtest.Op) error {
		if o.N > 0 && ops.Add(1) == int64(o.N) {
			return kills{}.happen(false)
		}
		return nil
	})
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	for i := range engineEvents {
		if o.N == 0 {
			break
		}
		id := strings.TrimSuffix(idPaid, "01") + fmt.Sprintf("%02d", i+10)
		if err := engine.Publish(ctx, paid, nil, events.WithID(id)); err != nil {
			return err
		}
		if err := d.add(entry{What: "published", Event: id}); err != nil {
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for pending := 1; pending > 0 || o.N > 0; {
		select {
		case <-tick.C:
		case <-limit:
			return fmt.Errorf("%d deliveries are pending", pending)
		}
		rig.Scan(t, sound, `SELECT count(*) FROM event_deliveries WHERE status = 'pending'`, nil, &pending)
	}
	return nil
}
