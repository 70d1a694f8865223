package loam_test

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/migrations"
)

// refused makes an engine and returns the text of the error that it should give.
func refused(t *testing.T, what string, cfg loam.Config) string {
	t.Helper()
	if _, err := loam.New(cfg); err != nil {
		return err.Error()
	}
	t.Errorf("%s is accepted", what)
	return ""
}

// Every mistake is reported at once, each beginning with its field.
func TestConfigReportsEveryMistake(t *testing.T) {
	t.Parallel()
	text := refused(t, "everything wrong", loam.Config{
		MaxPayloadBytes: -1, Concurrency: -1, HandlerTimeout: -1, StuckAfter: -1, CrashLimit: -1, Lease: -1, TakeoverMargin: -1,
		LostClaimsEvery: -1, SweepEvery: -1, SweepLimit: -1, SweepTimeout: -1, DrainTimeout: -1, StopTimeout: -1,
	})
	text = strings.ReplaceAll(text, "loam: Config: ", "\n")
	for _, field := range []string{
		"DB", "MaxPayloadBytes", "Concurrency", "HandlerTimeout", "StuckAfter", "CrashLimit", "Lease", "TakeoverMargin", "LostClaimsEvery",
		"SweepEvery", "SweepLimit", "SweepTimeout", "DrainTimeout", "StopTimeout",
	} {
		if !strings.Contains(text, "\n"+field+": ") {
			t.Errorf("%s is not reported:%s", field, text)
		}
	}
}

// Each field alone is a mistake, and names itself and no other.
func TestConfigFields(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for field, change := range map[string]func(*loam.Config){
			"DB":              func(c *loam.Config) { c.DB = nil },
			"MaxPayloadBytes": func(c *loam.Config) { c.MaxPayloadBytes = -1 },
			"Concurrency":     func(c *loam.Config) { c.Concurrency = -1 },
			"HandlerTimeout":  func(c *loam.Config) { c.HandlerTimeout = -time.Second },
			"StuckAfter":      func(c *loam.Config) { c.StuckAfter = -1 },
			"CrashLimit":      func(c *loam.Config) { c.CrashLimit = -10 },
			"Lease":           func(c *loam.Config) { c.Lease = 60*time.Second + time.Microsecond }, // the ledger has milliseconds
			"TakeoverMargin":  func(c *loam.Config) { c.TakeoverMargin = 10*time.Second - time.Nanosecond },
			"LostClaimsEvery": func(c *loam.Config) { c.LostClaimsEvery = -1 },
			"SweepEvery":      func(c *loam.Config) { c.SweepEvery = -1 },
			"SweepLimit":      func(c *loam.Config) { c.SweepLimit = -1 },
			"SweepTimeout":    func(c *loam.Config) { c.SweepTimeout = -1 },
			"DrainTimeout":    func(c *loam.Config) { c.DrainTimeout = -1 },
			"StopTimeout":     func(c *loam.Config) { c.StopTimeout = -1 },
		} {
			cfg := loam.Config{DB: db, Registry: durable.NewRegistry()}
			change(&cfg)
			text := refused(t, field, cfg)
			if !strings.HasPrefix(text, "loam: Config: "+field+": ") || strings.Contains(text, "\n") {
				t.Errorf("%s: %s", field, text)
			}
		}
	})
}

// More workers than River takes are refused when the engine is made, by the field's name, and not when it starts.
func TestConcurrencyHasALimit(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		if text := refused(t, "10,001 workers", loam.Config{DB: db, Registry: durable.NewRegistry(), Concurrency: 10_001}); !strings.Contains(text, "Concurrency: ") {
			t.Errorf("got %s", text)
		}
		if _, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry(), Concurrency: 10_000}); err != nil {
			t.Errorf("10,000 workers: %v", err)
		}
	})
}

// contract: L-08. A lease outlasts two renewals and the margin, so that one may fail; with renewal off, the longest handler.
func TestLeaseRules(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const s, off, ever = time.Second, -time.Second, time.Duration(math.MaxInt64)
		for what, c := range map[string]struct {
			lease, renew, margin, handler, stuck, subscriber time.Duration
			ok                                               bool
		}{
			"the defaults":                         {ok: true},
			"exactly enough":                       {lease: 50 * s, renew: 20 * s, margin: 10 * s, ok: true},
			"a millisecond short":                  {lease: 50*s - time.Millisecond, renew: 20 * s, margin: 10 * s},
			"a short lease with the rest default":  {lease: 40 * s},
			"a long margin":                        {margin: 30 * s},
			"rare renewals":                        {renew: 26 * s},
			"renewals once in a lifetime":          {renew: ever},
			"a handler longer than the lease":      {handler: time.Hour, ok: true}, // it is renewed
			"off, the defaults":                    {renew: off, ok: true},
			"off, the lease that is default then":  {renew: off, handler: 1785 * s, ok: true}, // 1800 = 1785 + 5 + 10
			"off, a handler a millisecond longer":  {renew: off, handler: 1785*s + time.Millisecond},
			"off, exactly enough":                  {lease: 30 * s, renew: off, margin: 7 * s, handler: 20 * s, stuck: 3 * s, ok: true},
			"off, a millisecond short":             {lease: 30*s - time.Millisecond, renew: off, margin: 7 * s, handler: 20 * s, stuck: 3 * s},
			"off, the subscriber's own is longer":  {renew: off, subscriber: 1785*s + 1},
			"off, the subscriber's own just fits":  {renew: off, subscriber: 1785 * s, ok: true},
			"off, the subscriber's own is shorter": {lease: 60 * s, renew: off, handler: 46 * s, subscriber: s},
			"off, a subscriber without a limit":    {renew: off, subscriber: ever},
			"off, handlers without a limit":        {renew: off, handler: ever},
		} {
			reg := durable.NewRegistry()
			if c.subscriber > 0 {
				reg.RegisterFunc("mailer", "shop.", succeed, durable.WithTimeout(c.subscriber))
			}
			_, err := loam.New(loam.Config{
				DB: db, Registry: reg, Lease: c.lease, RenewEvery: c.renew, TakeoverMargin: c.margin, HandlerTimeout: c.handler, StuckAfter: c.stuck,
			})
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "Lease: ") {
				t.Errorf("%s: got %v", what, err)
			}
		}
	})
}

// contract: L-08. A subscriber that was registered after New counts too: Start refuses what the lease cannot outlast.
func TestLeaseRuleAtStart(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		engine := newEngine(t, db, reg, func(c *loam.Config) { c.RenewEvery = -1 })
		reg.RegisterFunc("slow", "shop.", succeed, durable.WithTimeout(time.Hour))
		for range 2 {
			err := engine.Start(t.Context())
			if err == nil {
				stopEngine(t, engine)
			}
			if err == nil || !strings.Contains(err.Error(), "Start") || !strings.Contains(err.Error(), "Lease: ") {
				t.Errorf("got %v, want an error that names the lease", err)
			}
		}
	})
}

// contract: M-01. Start on a database that has not been migrated says what to do, and works when that is done.
func TestStartWithoutMigration(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "new.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	err = engine.Start(t.Context())
	if !errors.Is(err, migrations.ErrNotMigrated) || !strings.Contains(err.Error(), "Engine.Migrate") || !strings.Contains(err.Error(), "loam migrate") {
		t.Errorf("got %v, want ErrNotMigrated and what to do", err)
	}
	if err := errors.Join(engine.Migrate(t.Context()), engine.Migrate(t.Context()), engine.Start(t.Context())); err != nil {
		t.Errorf("after Migrate: %v", err)
	}
	stopEngine(t, engine)
}

// New does no I/O: a database that is closed is found by Start, which says so.
func TestNewDoesNoIO(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "closed.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	engine, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Start": engine.Start(t.Context()), "Migrate": engine.Migrate(t.Context()), "AddTenant": engine.AddTenant(t.Context(), "acme")} {
		if err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
