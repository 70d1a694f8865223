package loam_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
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
)

const day = 24 * time.Hour

// pruned marks the tables that housekeeping empties.
const pruned = "pruned"

// purgeRules says of every table what takes its rows away, or why none need to be.
var purgeRules = map[string]string{
	"event_deliveries":   pruned,
	"processed_events":   pruned,
	"event_queue":        pruned,
	"river_job":          pruned, // by River: completed after an hour, discarded after a week
	"river_queue":        "by River: a queue that no client has worked for a day",
	"river_notification": "by River, within minutes",
	"river_client":       "unused by River; dropped by a later version of it",
	"river_client_queue": "unused by River; dropped by a later version of it",
	"river_leader":       "one row",
	"river_migration":    "one row for each version of River's tables",
	"loam_migrations":    "one row for each version of ours",
	"loam_tenants":       "one row for each tenant; Engine.RemoveTenant takes it away",
	"loam_subscribers":   "one row for each key that there ever was: what is retired must stay known as that",
	"loam_pauses":        "one row for each paused subscriber of a tenant",
	"sqlite_sequence":    "one row for each table with ascending ids",
	"sqlite_stat1":       "the planner's, a few rows for each index",
	"sqlite_stat4":       "the planner's, a few rows for each index",
}

// withoutRule returns the tables of the database that no rule names.
func withoutRule(t *testing.T, db *database.DB) (tables, none []string) {
	t.Helper()
	query := `SELECT name FROM sqlite_schema WHERE type = 'table'`
	if db.Dialect() == database.PostgreSQL {
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`
	}
	tables = strings.Split(rig.Dump(t, db, query), "\n")
	for _, table := range tables {
		if purgeRules[table] == "" {
			none = append(none, table)
		}
	}
	return tables, none
}

// Every table has a rule by which its rows go, or a reason to be kept.
//
// contract: S-06
// scenario: B202
func TestEveryTableHasAPurgeRule(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		tables, none := withoutRule(t, db)
		if len(none) > 0 || !slices.Contains(tables, "event_deliveries") || !slices.Contains(tables, "river_job") {
			t.Errorf("of %v there is no rule for %v", tables, none)
		}
		rig.Exec(t, db, `CREATE TABLE loam_of_tomorrow (id INTEGER)`)
		if _, none := withoutRule(t, db); !slices.Equal(none, []string{"loam_of_tomorrow"}) {
			t.Errorf("a new table is not seen: %v", none)
		}
	})
}

// movedBy has a clock that is ahead by what the test says.
func movedBy(offset *atomic.Int64, skew time.Duration) func(*loam.Config) {
	return func(c *loam.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		c.MaxClockSkew = skew
	}
}

const isPrune = `kind = 'loam_retention'`

// pruneNow has the engine do at once the prune that it asked for at its start, and waits for its end.
func pruneNow(t *testing.T, db *database.DB) {
	t.Helper()
	until(t, time.Minute, "pruned", func() bool {
		rig.Exec(t, db, `UPDATE river_job SET state = 'available', scheduled_at = created_at WHERE `+isPrune+` AND state = 'scheduled'`)
		var all, completed int
		rig.Scan(t, db, `SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM river_job WHERE `+isPrune, nil, &all, &completed)
		return all > 0 && completed == all
	})
}

// forgetPrune stops an engine; the next one will ask for a prune at its start, as if the last one had been long ago.
func forgetPrune(t *testing.T, db *database.DB, engine *loam.Engine) {
	t.Helper()
	stopEngine(t, engine)
	rig.Exec(t, db, `DELETE FROM river_job WHERE `+isPrune)
}

// Events go all the way; a month later nothing is left of them but what is to be kept.
//
// contract: S-06, L-07
// scenario: B202
func TestNothingPilesUp(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		n := 200
		if nightly() {
			n = 100_000
		}
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", succeed)
		var offset atomic.Int64
		keep := func(c *loam.Config) { c.KeepEvents = true }
		engine := startEngine(t, db, reg, movedBy(&offset, -1), keep)
		for first := 0; first < n; first += 500 {
			err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
				for i := first; i < min(first+500, n); i++ {
					if err := engine.PublishTx(ctx, tx, "shop.order.paid", events.Payload{"order": i}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		until(t, 20*time.Minute, "delivered", func() bool { return count(t, db, `status = 'delivered'`) == n })
		sizes := func() map[string]int {
			out := map[string]int{}
			for table, rule := range purgeRules {
				if rule == pruned {
					var n int
					rig.Scan(t, db, `SELECT count(*) FROM `+table, nil, &n)
					out[table] = n
				}
			}
			return out
		}
		offset.Store(int64(6 * day))
		pruneNow(t, db)
		for table, size := range sizes() {
			if size < n {
				t.Errorf("six days later %s has %d rows", table, size)
			}
		}
		forgetPrune(t, db, engine)

		offset.Store(int64(31 * day))
		long := time.Now().Add(-2 * time.Hour).UTC().Format("2006-01-02 15:04:05.000")
		if db.Dialect() == database.PostgreSQL {
			long += "+00"
		}
		rig.Exec(t, db, `UPDATE river_job SET finalized_at = $1 WHERE state = 'completed'`, long) // River has a clock of its own
		startEngine(t, db, durable.NewRegistry(), movedBy(&offset, -1), keep)
		pruneNow(t, db)
		until(t, 5*time.Minute, "near zero", func() bool {
			s := sizes()
			return s["event_deliveries"] == 0 && s["processed_events"] == 0 && s["event_queue"] == 0 && s["river_job"] < 20
		})
	})
}

// By a clock that is ahead everything is old: a process whose clock is off prunes nothing, however shortly it has been off.
//
// contract: D-23, S-06
func TestNoPruneByAClockThatIsOff(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var offset atomic.Int64
		engine := startEngine(t, db, registryWith("s1"), movedBy(&offset, 0))
		if err := engine.Publish(inTenant(t), "order.item.placed", nil); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "delivered", func() bool { return delivered(t, db, "s1") == 1 })
		offset.Store(int64(40 * day))
		pruneNow(t, db)
		if n := delivered(t, db, "s1"); n != 1 {
			t.Errorf("%d deliveries are left", n)
		}
		forgetPrune(t, db, engine)
		startEngine(t, db, registryWith("s1"), movedBy(&offset, -1)) // says that its clock is right
		pruneNow(t, db)
		if n := delivered(t, db, "s1"); n != 0 {
			t.Errorf("the test shows nothing: %d deliveries are left", n)
		}
	})
}

// How long rows are kept has a least value, for 30 is not 30 days; negative is for ever.
func TestKeepTimes(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for field, set := range map[string]func(*loam.Config, time.Duration){
			"KeepDelivered": func(c *loam.Config, d time.Duration) { c.KeepDelivered = d },
			"KeepProcessed": func(c *loam.Config, d time.Duration) { c.KeepProcessed = d },
			"KeepOutbox":    func(c *loam.Config, d time.Duration) { c.KeepOutbox = d },
			"KeepDead":      func(c *loam.Config, d time.Duration) { c.KeepDead = d },
		} {
			cfg := loam.Config{DB: db, Registry: durable.NewRegistry()}
			for _, d := range []time.Duration{1, 30, time.Hour - 1} {
				set(&cfg, d)
				text := refused(t, fmt.Sprint(field, " ", d), cfg)
				if !strings.HasPrefix(text, "loam: Config: "+field+": ") || strings.Contains(text, "\n") || !strings.Contains(text, "1h0m0s") {
					t.Errorf("%s of %v: %s", field, d, text)
				}
			}
			for _, d := range []time.Duration{-1, 0, time.Hour, math.MinInt64, math.MaxInt64} {
				set(&cfg, d)
				if _, err := loam.New(cfg); err != nil {
					t.Errorf("%s of %v: %v", field, d, err)
				}
			}
		}
	})
}
