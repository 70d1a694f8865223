package loam_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/health"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// deployEvents is how many events the deploy tests publish.
const deployEvents = 1000

// clockEnv is how far a child's clock is off: its -clock-offset.
const clockEnv = "LOAM_TEST_CLOCK_OFFSET"

func init() {
	children["publish-only"] = childPublishOnly
	children["worker-s2"] = func(ctx context.Context) error { return work(ctx, registryWith("s2"), shortLease, nil) }
	children["worker-new"] = func(ctx context.Context) error { return work(ctx, registryWith("s1", "s2"), shortLease, nil) }
	children["worker-old"] = func(ctx context.Context) error { return work(ctx, registryWith("s1"), shortLease, nil) }
	children["clock-off"] = childClockOff
}

func registryWith(keys ...string) *durable.Registry {
	reg := durable.NewRegistry()
	for _, key := range keys {
		reg.RegisterFunc(key, "order.item.", func(context.Context, events.Event) error { return nil })
	}
	return reg
}

// childPublishOnly publishes without a registration, and without starting its engine.
func childPublishOnly(ctx context.Context) (err error) {
	db, err := openChild(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	engine, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for n := range deployEvents {
		if err := engine.Publish(tenant.With(ctx, "acme"), "order.item.placed", events.Payload{"n": n}); err != nil {
			return err
		}
	}
	return os.WriteFile(inDir("published"), nil, 0o600)
}

// childClockOff works with a clock that is off, publishes one event, and writes its health down.
func childClockOff(ctx context.Context) error {
	offset, err := time.ParseDuration(os.Getenv(clockEnv))
	if err != nil {
		return err
	}
	clock := func(c *loam.Config) {
		shortLease(c)
		c.Now = func() time.Time { return time.Now().Add(offset) }
	}
	return work(ctx, registryWith("s2"), clock, func(ctx context.Context, engine *loam.Engine) error {
		if err := engine.Publish(ctx, "order.item.placed", nil); err != nil {
			return err
		}
		report, err := json.Marshal(engine.Health(ctx))
		if err != nil {
			return err
		}
		if err := os.WriteFile(inDir("health.tmp"), report, 0o600); err != nil {
			return err
		}
		return os.Rename(inDir("health.tmp"), inDir("health"))
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func delivered(t *testing.T, db *database.DB, key string) int {
	t.Helper()
	return count(t, db, `status = 'delivered' AND subscriber_key = $1 AND attempts = 0`, key)
}

// contract: D-24. A process that publishes only, without a single registration, publishes 1,000 events, and a worker process
// delivers them.
// scenario: B033
func TestPublishOnlyProcess(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		dir := s.dir
		db, _ := dbtest.OpenPlace(t, s.place)
		worker := startChild(t, "worker-s2", s)
		worker.up()
		publisher := startChild(t, "publish-only", s)
		until(t, time.Minute, "published", func() bool { return exists(filepath.Join(dir, "published")) })
		publisher.wait()
		until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s2") == deployEvents })
		if n := count(t, db, `true`); n != deployEvents {
			t.Errorf("%d rows, want %d", n, deployEvents)
		}
		worker.stop()
	})
}

// contract: D-22, D-24. A rolling deploy: an old worker that does not know the key s2 and a new one that does, over one
// file, and then the old one ends. Of 1,000 events none is dead, and none is lost, for either key.
// scenario: B175
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		db, _ := dbtest.OpenPlace(t, s.place)
		older := startChild(t, "worker-old", s)
		older.up()
		newer := startChild(t, "worker-new", s)
		newer.up()
		startChild(t, "publish-only", s).wait()
		until(t, time.Minute, "put back by the old one", func() bool {
			return count(t, db, `subscriber_key = 's2' AND status = 'pending' AND next_attempt_at IS NOT NULL`) > 0
		})
		older.stop()
		until(t, 2*time.Minute, "delivered", func() bool {
			return delivered(t, db, "s2") == deployEvents && delivered(t, db, "s1") == deployEvents
		})
		if n := count(t, db, `status = 'dead' OR attempts > 0`); n != 0 {
			t.Errorf("%d rows are dead or have spent an attempt", n)
		}
		newer.stop()
	})
}

// contract: D-23. A process whose clock is 60 s off publishes, claims nothing, and says so in its log and its health;
// another process delivers what it published.
func TestClockOff(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		for _, offset := range []string{"60s", "-60s"} {
			t.Run(offset, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, s.place.Dialect)
				dir := s.dir
				db, _ := dbtest.OpenPlace(t, s.place)
				off := startChild(t, "clock-off", s, clockEnv+"="+offset)
				until(t, time.Minute, "published", func() bool { return exists(filepath.Join(dir, "health")) })
				text, err := os.ReadFile(filepath.Join(dir, "health")) //nolint:gosec // a file of the test
				if err != nil {
					t.Fatal(err)
				}
				var report health.Report
				if err := json.Unmarshal(text, &report); err != nil {
					t.Fatal(err)
				}
				if report.Ready || !report.Live || !strings.Contains(strings.Join(report.Problems, " "), "clock of this process is off") {
					t.Errorf("health: %s", text)
				}
				if d := report.ClockDifference.Abs(); d < 59*time.Second || d > 61*time.Second {
					t.Errorf("the difference is %v", report.ClockDifference)
				}
				// Wake what it published where it would look, were it allowed to: nothing is claimed.
				id := ""
				rig.Scan(t, db, `SELECT id FROM event_deliveries`, nil, &id)
				rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = NULL, created_at = '2020-01-01 00:00:00.000000'`)
				healthy := startChild(t, "worker-s2", s)
				healthy.up()
				until(t, time.Minute, "delivered by the other", func() bool { return delivered(t, db, "s2") == 1 })
				off.stop()
				healthy.stop()
				if !strings.Contains(off.stderr.String(), "the clock of this process is off") {
					t.Errorf("its log: %s", off.stderr.String())
				}
				var owners, jobs int
				rig.Scan(t, db, `SELECT runs FROM event_deliveries WHERE id = $1`, []any{id}, &owners)
				rig.Scan(t, db, `SELECT count(*) FROM river_job WHERE kind = 'loam_event_delivery' AND attempt > 1`, nil, &jobs)
				if owners != 1 || jobs != 0 {
					t.Errorf("%d runs, %d jobs tried more than once", owners, jobs)
				}
			})
		}
	})
}

// contract: D-23. When the clock is right again, the process works again; with the check off it never looks.
func TestClockCheckOff(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.Open(t)
	reg := registryWith("s2")
	engine := startEngine(t, db, reg, shortLease, func(c *loam.Config) {
		c.MaxClockSkew = -1
		c.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	})
	if err := engine.Publish(inTenant(t), "order.item.placed", nil); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s2") == 1 })
}
