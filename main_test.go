package loam_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// childEnv names the program that the test binary is to be instead of running its tests, see children.
const childEnv = "LOAM_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		dbtest.RemoveChildProgram()
		os.Exit(code)
	}))
}

// inTenant is the test's context in the tenant that newEngine adds.
func inTenant(t *testing.T) context.Context {
	t.Helper()
	return tenant.With(t.Context(), "acme")
}

// newEngine makes an engine over a migrated database, with the tenant acme. Its log goes nowhere unless change says so.
func newEngine(t *testing.T, db *database.DB, reg *durable.Registry, change ...func(*loam.Config)) *loam.Engine {
	t.Helper()
	cfg := loam.Config{DB: db, Registry: reg, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
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

// startEngine makes an engine and starts it. It is stopped when the test ends, if it is not before.
func startEngine(t *testing.T, db *database.DB, reg *durable.Registry, change ...func(*loam.Config)) *loam.Engine {
	t.Helper()
	engine := newEngine(t, db, reg, change...)
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopEngine(t, engine) })
	return engine
}

func stopEngine(t *testing.T, engine *loam.Engine) {
	t.Helper()
	if err := engine.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// shortLease has the lease of a second, and checks for lost claims to match.
func shortLease(c *loam.Config) {
	c.Lease, c.TakeoverMargin, c.RenewEvery = time.Second, 200*time.Millisecond, 200*time.Millisecond
	c.LostClaimsEvery = 200 * time.Millisecond
}

// until waits for ok, and fails the test if it does not come.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %v: still not %s", limit, what)
		}
	}
}

// receive waits for n values.
func receive[T any](t *testing.T, c <-chan T, n int, what string) {
	t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	for i := range n {
		select {
		case <-c:
		case <-deadline.C:
			t.Fatalf("after 60s: %d of %d %s", i, n, what)
		}
	}
}

// count counts the rows that a condition on event_deliveries finds.
func count(t *testing.T, db *database.DB, where string, args ...any) int {
	t.Helper()
	var n int
	rig.Scan(t, db, `SELECT count(*) FROM event_deliveries WHERE `+where, args, &n)
	return n
}
