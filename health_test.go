package loam_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/internal/rig"
)

// A database that does not answer is a finding of the report, without the reason, which may hold anything; the reason is in
// the log, once at the beginning of each outage, and the end is there too.
//
//nolint:paralleltest // synctest forbids it
func TestHealthOfADatabaseThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, faults := dbtest.Open(t)
		logs := &rig.Logs{}
		engine := newEngine(t, db, registryWith("s2"), func(c *loam.Config) { c.Logger = slog.New(logs) })
		for round := 1; round <= 2; round++ {
			if r := engine.Health(inTenant(t)); !r.Live || !r.Ready || len(r.Problems) != 0 {
				t.Fatalf("round %d, before: %+v", round, r)
			}
			faults.Before(func(dbtest.Op) error { return errors.New("s3cret") })
			for range 5 {
				r := engine.Health(inTenant(t))
				if r.Ready || len(r.Problems) == 0 || strings.Contains(strings.Join(r.Problems, " "), "s3cret") {
					t.Fatalf("round %d: %+v", round, r)
				}
			}
			faults.Before(nil)
			if r := engine.Health(inTenant(t)); !r.Ready {
				t.Fatalf("round %d, after: %+v", round, r)
			}
			if began, ended := len(logs.Lines("ERROR", "s3cret")), len(logs.Lines("INFO", "succeeding again")); began != round || ended != round {
				t.Fatalf("after outage %d the log has %d beginnings and %d ends:\n%s", round, began, ended, strings.Join(logs.Lines(), "\n"))
			}
			time.Sleep(2 * outage.Period) // on the bubble's clock
		}
	})
}
