package loam_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
)

func init() { children["zoned"] = zoned }

const zonedBackoff = 2 * time.Second

// zoned publishes an event whose delivery fails once, and says what its local time is.
func zoned(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	zones, err := openDiary("zone")
	if err != nil {
		return err
	}
	first := true
	reg := durable.NewRegistry()
	reg.Register("mail", "shop.", runs.noted("mail", func(context.Context, events.Event) error {
		if first {
			first = false
			return errors.New("once more")
		}
		return nil
	}), durable.WithBackoff(zonedBackoff))
	return work(ctx, reg, func(*loam.Config) {}, func(ctx context.Context, e *loam.Engine) error {
		_, offset := time.Now().Zone()
		return errors.Join(zones.add(offset), e.Publish(ctx, "shop.order.paid", nil))
	})
}

// A process in China, over a database in Brazil: the retry comes after its backoff, and neither hours later nor at once; and
// every stored time is the true one.
//
// contract: D-09, S-02
// scenario: B163
func TestProcessAndDatabaseInOtherZones(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		db := s.unmigrated(t)
		if s.place.Dialect == database.PostgreSQL {
			var name string
			rig.Scan(t, db, `SELECT current_database()`, nil, &name)
			rig.Exec(t, db, `ALTER DATABASE `+name+` SET timezone = 'America/Sao_Paulo'`)
		}
		before := time.Now()
		child := startChild(t, "zoned", s, "TZ=Asia/Shanghai")
		child.up()
		until(t, 60*time.Second, "delivered", func() bool {
			child.running()
			return count(t, db, `status = 'delivered' AND attempts = 1 AND runs = 2`) == 1
		})
		child.stop()
		after := time.Now()
		if zone, err := lines(filepath.Join(s.dir, "zone")); err != nil || !slices.Equal(zone, []string{"28800"}) {
			t.Errorf("the child is %q seconds from UTC, %v", zone, err)
		}
		runs := readRuns(t, s.dir, nil)
		slices.SortFunc(runs, func(a, b notedRun) int { return int(a.start - b.start) })
		if len(runs) != 2 {
			t.Fatalf("%d runs", len(runs))
		}
		if gap := time.Duration(runs[1].start - runs[0].start); gap < zonedBackoff-100*time.Millisecond || gap > 30*time.Second {
			t.Errorf("the retry came after %v, want %v", gap, zonedBackoff)
		}
		for _, at := range []string{
			`created_at FROM event_deliveries`, `updated_at FROM event_deliveries`, `delivered_at FROM event_deliveries`,
			`applied_at FROM loam_migrations`, `created_at FROM loam_tenants`, `last_seen FROM loam_subscribers`,
			`max(scheduled_at) FROM river_job WHERE kind = 'loam_event_delivery'`,
		} {
			var got database.Time
			rig.Scan(t, db, `SELECT `+at, nil, &got)
			if got.Before(before.Add(-time.Second)) || got.After(after.Add(time.Second)) {
				t.Errorf("%s: %v, want between %v and %v", at, got, before.UTC(), after.UTC())
			}
		}
		var started int64
		rig.Scan(t, db, `SELECT started_at FROM processed_events WHERE status = 'done'`, nil, &started)
		if at := time.UnixMilli(started); at.Before(before.Add(-time.Second)) || at.After(after) {
			t.Errorf("the ledger says %v", at)
		}
	})
}
