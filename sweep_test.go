package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	"github.com/openloam/loam/sweep"
	"github.com/openloam/loam/tenant"
)

// publishWithoutJobs publishes n events in one transaction and deletes all of River's jobs in it, so that the wake-ups were
// never there for anybody to see.
func publishWithoutJobs(t *testing.T, engine *loam.Engine, tenantID string, n int) {
	t.Helper()
	ctx := tenant.With(t.Context(), tenantID)
	err := engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range n {
			if err := engine.PublishTx(ctx, tx, "shop.order.paid", events.Payload{"order": i}); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM river_job`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sweeps counts the sweeps that have ended.
func sweeps(t *testing.T, db *database.DB) int {
	t.Helper()
	var n int
	rig.Scan(t, db, `SELECT count(*) FROM river_job WHERE kind = 'open_loam_event_redelivery_sweep' AND state = 'completed'`, nil, &n)
	return n
}

// emptyRiver deletes every row of every table of River's, but for the versions of its schema, and for the leader: a new one
// would sweep as at a start, which is not what the test is about.
func emptyRiver(t *testing.T, db *database.DB) {
	t.Helper()
	var tables []string
	all := db.Mapper().NewSelect().Table("sqlite_schema").Column("name").Where("type = 'table'")
	if db.Dialect() == database.PostgreSQL {
		all = db.Mapper().NewSelect().Table("pg_tables").ColumnExpr("tablename AS name").Where("schemaname = current_schema()")
	}
	err := db.Mapper().NewSelect().TableExpr("(?) AS t", all).Column("name").
		Where("name LIKE 'river%' AND name NOT IN ('river_migration', 'river_leader')").Scan(t.Context(), &tables)
	if err != nil || !slices.Contains(tables, "river_job") {
		t.Fatalf("River's tables are %v, %v", tables, err)
	}
	for _, table := range tables {
		rig.Exec(t, db, `DELETE FROM `+table)
	}
}

func sweepEvery(d time.Duration) func(*loam.Config) {
	return func(c *loam.Config) { c.SweepEvery = d }
}

func init() { children["swept"] = swept }

// swept has fifty subscribers, and a sweep every two seconds.
func swept(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	reg := durable.NewRegistry()
	for i := range 50 {
		key := fmt.Sprintf("s.%02d", i)
		reg.Register(key, "shop.", runs.noted(key, func(context.Context, events.Event) error { return nil }))
	}
	return work(ctx, reg, sweepEvery(2*time.Second), nil)
}

// All rows of all of River's tables are deleted under a running process, while 500 deliveries are pending. The next sweep
// wakes them, and all are delivered, once.
//
// contract: S-01, S-03
func TestSweepWithoutAnyJob(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		dir := s.dir
		db, _ := dbtest.OpenPlace(t, s.place)
		reg := durable.NewRegistry()
		for i := range 50 {
			reg.RegisterFunc(fmt.Sprintf("s.%02d", i), "shop.", func(context.Context, events.Event) error { return nil })
		}
		publisher := newEngine(t, db, reg)
		p := startChild(t, "swept", s)
		until(t, 60*time.Second, "through with the sweeps of its start", func() bool {
			p.running()
			return sweeps(t, db) >= 2
		})
		publishWithoutJobs(t, publisher, "acme", 10)
		emptyRiver(t, db)
		until(t, 60*time.Second, "all delivered", func() bool {
			p.running()
			return count(t, db, `status = 'delivered'`) == 500
		})
		p.stop()
		if runs := readRuns(t, dir, nil); len(runs) != 500 || count(t, db, `true`) != 500 {
			t.Errorf("%d runs of %d deliveries, want 500", len(runs), count(t, db, `true`))
		}
	})
}

// A start sweeps at once, with the period far away: also when the last leader of River's is a process that was killed and
// holds its office still. Its job has the key that the contract names.
//
// contract: S-01, S-03
// scenario: B069
func TestSweepAtStart(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var runs atomic.Int64
		registry := func() *durable.Registry {
			reg := durable.NewRegistry()
			reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error {
				runs.Add(1)
				return nil
			})
			return reg
		}
		for restart := 1; restart <= 3; restart++ {
			publishWithoutJobs(t, newEngine(t, db, registry()), "acme", 1)
			later := time.Now().Add(time.Hour).UTC().Format("2006-01-02 15:04:05.000")
			rig.Exec(t, db, `INSERT INTO river_leader (elected_at, expires_at, leader_id) VALUES ($1, $1, 'killed')
				ON CONFLICT (name) DO UPDATE SET leader_id = 'killed', expires_at = excluded.expires_at`, later)
			engine := startEngine(t, db, registry(), sweepEvery(time.Hour))
			until(t, 60*time.Second, "delivered", func() bool { return count(t, db, `status = 'delivered'`) == restart })
			stopEngine(t, engine)
			if n := runs.Load(); n != int64(restart) {
				t.Fatalf("%d runs after %d restarts", n, restart)
			}
		}
		if n := sweeps(t, db); n == 0 || sweep.Key != "open_loam_event_redelivery_sweep" {
			t.Errorf("%d jobs of the contract's key were worked; ours is %s", n, sweep.Key)
		}
	})
}

// A tenant that is made while the engine runs is served without a restart: by the wake-up, and when that is lost by the
// sweep.
//
// contract: S-01, T-06
// scenario: B087
func TestTenantMadeWhileRunning(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const every = 2 * time.Second
		reg := durable.NewRegistry()
		at := make(chan string, 10)
		reg.RegisterFunc("mail", "shop.", func(ctx context.Context, _ events.Event) error {
			at <- tenant.From(ctx)
			return nil
		})
		engine := startEngine(t, db, reg, sweepEvery(every))
		if err := engine.AddTenant(t.Context(), "t50"); err != nil {
			t.Fatal(err)
		}
		ctx := tenant.With(t.Context(), "t50")
		if err := engine.Publish(ctx, "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		until(t, 60*time.Second, "delivered", func() bool { return count(t, db, `status = 'delivered'`) == 1 })
		until(t, 60*time.Second, "through with the sweeps of the start", func() bool { return sweeps(t, db) >= 2 })
		began := time.Now()
		publishWithoutJobs(t, engine, "t50", 1)
		until(t, 60*time.Second, "delivered", func() bool { return count(t, db, `status = 'delivered'`) == 2 })
		if took := time.Since(began); took > 2*every+15*time.Second { // fifteen for a slow machine
			t.Errorf("the sweep found the new tenant after %v", took)
		}
		for range 2 {
			if got := <-at; got != "t50" {
				t.Errorf("a handler ran in tenant %q", got)
			}
		}
	})
}

// flaky is a directory whose listing fails in the ways that the test says, by the number of the call.
type flaky struct {
	calls atomic.Int64
	list  func(call int64) ([]string, error)
}

func (f *flaky) Exists(context.Context, tenant.Querier, string) (bool, error) { return true, nil }

func (f *flaky) List(context.Context, string, int) ([]string, error) { return f.list(f.calls.Add(1)) }

// The third sweep meets an error, the fifth a panic. Both are in the log, and the sixth serves every tenant.
//
// contract: S-05
// scenario: B067
func TestSweepGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error { return nil })
		logs := &rig.Logs{}
		dir := &flaky{list: func(call int64) ([]string, error) {
			switch {
			case call == 3:
				return nil, errors.New("the directory is away")
			case call == 5:
				panic("the directory is broken")
			case call < 6:
				return nil, nil
			}
			return []string{"acme", "globex"}, nil
		}}
		engine := newEngine(t, db, reg, sweepEvery(time.Second), func(c *loam.Config) {
			c.Tenants, c.Logger = dir, slog.New(logs)
		})
		publishWithoutJobs(t, engine, "acme", 1)
		publishWithoutJobs(t, engine, "globex", 1)
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		until(t, 60*time.Second, "delivered by the sixth sweep", func() bool { return count(t, db, `status = 'delivered'`) == 2 })
		for _, text := range []string{"the directory is away", "the directory is broken"} {
			if len(logs.Lines("ERROR", text)) == 0 {
				t.Errorf("no error line says %q:\n%s", text, strings.Join(logs.Lines(), "\n"))
			}
		}
	})
}

// Of a tenant whose sweep fails nothing reaches the others: they are swept, each time.
//
// contract: S-05
// scenario: B087
func TestFailingTenantDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error { return nil })
		dir := &flaky{list: func(int64) ([]string, error) { return []string{"acme", "broken", "globex"}, nil }}
		engine := newEngine(t, db, reg, sweepEvery(time.Second), func(c *loam.Config) { c.Tenants = dir })
		for _, id := range []string{"acme", "broken", "globex"} {
			publishWithoutJobs(t, engine, id, 1)
		}
		var failed atomic.Int64
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "query" && strings.Contains(op.SQL, "FROM event_deliveries AS d") && strings.Contains(op.SQL, "LIMIT $6") {
				if n := failed.Add(1); n%3 == 2 { // the second of three, in the order of the listing
					return errors.New("the second tenant's database is away")
				}
			}
			return nil
		})
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stopEngine(t, engine) })
		until(t, 60*time.Second, "the others delivered", func() bool { return count(t, db, `status = 'delivered'`) == 2 })
		if n := count(t, db, `status = 'pending' AND tenant_id = 'broken'`); n != 1 {
			t.Error("the failing tenant was not the one that was left out")
		}
		faults.Before(nil)
		until(t, 60*time.Second, "all delivered", func() bool { return count(t, db, `status = 'delivered'`) == 3 })
	})
}
