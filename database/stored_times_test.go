package database_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

const eventName = "shop.order.placed"

// zoneEnv makes a child process of TestTimesInOtherZones.
const zoneEnv = "LOAM_TEST_ZONE"

// In processes whose local time is far from UTC, with clocks that have a monotonic reading, the stored texts are UTC and
// plain, and a process that starts later finds the row when it is due.
// contract: S-02
// scenario: B157
func TestTimesInOtherZones(t *testing.T) {
	t.Parallel()
	if zone := os.Getenv(zoneEnv); zone != "" {
		timesInZone(t, zone)
		return
	}
	for _, zone := range []string{"Asia/Tehran", "Asia/Kathmandu", "America/St_Johns"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTimesInOtherZones$", "-test.v") //nolint:gosec // this binary
		cmd.Env = append(os.Environ(), "TZ="+zone, zoneEnv+"="+zone)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", zone, err, out)
		}
	}
}

func timesInZone(t *testing.T, zone string) {
	t.Helper()
	base := time.Now()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	if _, want := base.In(loc).Zone(); base.Location() != time.Local || offset(base) != want {
		t.Fatalf("the local time is %v, not that of %s", base, zone)
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		local := func(c *durable.Config) { // the rig's clock as time.Now gives it: local, with a monotonic reading
			utc := c.Now
			c.Now = func() time.Time { return base.Add(utc().Sub(base)) }
		}
		r := rig.New(t, db, local)
		r.Clock.Add(base.Sub(r.Clock.Now()))
		r.Registry.RegisterFunc("mailer", eventName, func(context.Context, events.Event) error { return errors.New("no") })
		r.Publish("acme", eventName, nil)
		r.Work()
		const microseconds = "2006-01-02 15:04:05.000000"
		start := base.UTC().Format(microseconds)
		due := base.Add(time.Minute).UTC().Format(microseconds)
		got := texts(t.Context(), t, db, `SELECT created_at, next_attempt_at, status FROM event_deliveries`)
		if want := []string{start, due, "pending"}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Fatalf("stored %q, want %q", got, want)
		}

		r.Wakeups.Clear()
		s := r.Second(local)
		ran := 0
		s.Registry.RegisterFunc("mailer", eventName, func(context.Context, events.Event) error {
			ran++
			return nil
		})
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{time.Minute - time.Microsecond, 0}, {time.Microsecond, 1}} {
			s.Clock.Add(step.wait)
			if n, err := s.Sweeper.RedeliverStuck(s.Ctx("acme"), s.Clock.Now(), 500); err != nil || n != step.want {
				t.Fatalf("the sweep woke %d (%v), want %d", n, err, step.want)
			}
		}
		if s.Work(); ran != 1 || s.Row("acme", "mailer").Status != durable.Delivered {
			t.Errorf("%d runs; the row is %+v", ran, s.Row("acme", "mailer"))
		}
	})
}

func offset(at time.Time) int {
	_, seconds := at.Zone()
	return seconds
}

// What has not happened is NULL and not year 1, in a fresh row, in a claim, and again after success and redelivery.
// contract: D-04
// scenario: B158
func TestWhatHasNotHappenedIsNull(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		const row = `SELECT next_attempt_at, delivered_at, discarded_at, last_error, duration_ms, original_payload FROM event_deliveries`
		nulls := func(when string, columns ...int) {
			t.Helper()
			got := texts(t.Context(), t, db, row)
			for _, c := range columns {
				if got[c] != "NULL" {
					t.Errorf("%s: column %d of %q is not NULL", when, c, got)
				}
			}
		}
		fail := true
		r.Registry.RegisterFunc("mailer", eventName, func(ctx context.Context, _ events.Event) error {
			if got := texts(ctx, t, db, `SELECT status, processed_at FROM processed_events`); len(got) != 2 || got[0] != "in_progress" || got[1] != "NULL" {
				t.Errorf("a claim is %q", got)
			}
			if fail {
				return errors.New("no")
			}
			return nil
		}, durable.WithMaxAttempts(1))
		r.Publish("acme", eventName, nil)
		nulls("fresh", 0, 1, 2, 3, 4, 5)
		if got := r.Row("acme", "mailer"); !got.NextAttemptAt.IsZero() || !got.DeliveredAt.IsZero() || got.LastError != "" {
			t.Errorf("fresh: it is read as %+v", got)
		}
		if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 10); n != 1 || err != nil {
			t.Errorf("fresh: the sweep found %d (%v), want 1", n, err)
		}
		r.Work()
		nulls("dead", 0, 1, 2, 5)
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), r.Row("acme", "mailer").ID); err != nil {
			t.Fatal(err)
		}
		nulls("redelivered", 0, 1, 2, 3, 5)
		fail = false
		r.Work()
		nulls("delivered", 0, 2, 3, 5)
		if got := r.Row("acme", "mailer"); got.Status != durable.Delivered || got.DeliveredAt.IsZero() {
			t.Errorf("delivered: it is read as %+v", got)
		}
	})
}

// On one day, half an hour is half an hour: a row due at 10:00 is not swept at 09:59:59.999999, and of two claims only
// the one whose lease and margin are over is lost.
// contract: S-02, L-08
// scenario: B159
func TestWindowsWithinADay(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Clock.Add(time.Date(2026, 7, 1, 9, 30, 0, 0, time.UTC).Sub(r.Clock.Now()))
		runs := map[string]int{}
		handler := func(key string) func(context.Context, events.Event) error {
			return func(context.Context, events.Event) error {
				if runs[key]++; key == "late" && runs[key] == 1 {
					return errors.New("not yet")
				}
				return nil
			}
		}
		r.Registry.RegisterFunc("late", eventName, handler("late"), durable.WithBackoff(30*time.Minute))
		r.Publish("acme", eventName, nil)
		r.Work()
		if got := texts(t.Context(), t, db, `SELECT next_attempt_at FROM event_deliveries`); got[0] != "2026-07-01 10:00:00.000000" {
			t.Fatalf("due at %q", got)
		}
		sweep := func(want int) {
			t.Helper()
			r.Wakeups.Clear()
			if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 500); err != nil || n != want {
				t.Errorf("at %v the sweep woke %d (%v), want %d", r.Clock.Now(), n, err, want)
			}
		}
		sweep(0)
		r.Clock.Add(30*time.Minute - time.Microsecond)
		sweep(0)
		r.Clock.Add(time.Microsecond)
		sweep(1)
		r.Work()

		r.Registry.RegisterFunc("old", "shop.claims.old", handler("old"))
		r.Registry.RegisterFunc("young", "shop.claims.young", handler("young"))
		abandon(t, r, r.Publish("acme", "shop.claims.old", nil), "old")
		r.Clock.Add(time.Second)
		abandon(t, r, r.Publish("acme", "shop.claims.young", nil), "young")
		r.Wakeups.Clear()
		r.Clock.Add(rig.Lease + rig.Margin - time.Second - time.Millisecond)
		for _, want := range []struct {
			wait       time.Duration
			found      int
			old, young int
		}{{0, 0, 0, 0}, {time.Millisecond, 1, 1, 0}, {time.Second, 1, 1, 1}} {
			r.Clock.Add(want.wait)
			if n, err := r.Sweeper.LostClaims(t.Context()); err != nil || n != want.found {
				t.Errorf("at %v %d claims were lost (%v), want %d", r.Clock.Now(), n, err, want.found)
			}
			if r.Work(); runs["old"] != want.old || runs["young"] != want.young {
				t.Errorf("at %v the runs are %v, want %+v", r.Clock.Now(), runs, want)
			}
		}
		if runs["late"] != 2 {
			t.Errorf("the late one ran %d times", runs["late"])
		}
	})
}

// abandon claims an event as a process does that then dies.
func abandon(t *testing.T, r *rig.Rig, e events.Event, key string) {
	t.Helper()
	err := r.DB.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		claims, err := r.Ledger.Claim(ctx, tx, r.Clock.Now(), ledger.NewOwner(), ledger.Candidates{
			SQL: `SELECT $1 AS tenant_id, $2 AS event_id, $3 AS handler`, Args: []any{e.TenantID, e.ID, key},
		})
		if len(claims) != 1 {
			t.Errorf("claimed %v", claims)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A claim taken at a time that is no whole millisecond is found again by its token, in a success, a failure and a renewal,
// and the last moment of a day stays on its day.
// contract: L-03
// scenario: B162
func TestTokensAndTimesAreCutNotRounded(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		at := time.Date(2026, 2, 28, 23, 59, 59, 999_999_900, time.UTC)
		r.Clock.Add(at.Sub(r.Clock.Now()))
		fail := true
		r.Registry.RegisterFunc("mailer", eventName, func(ctx context.Context, _ events.Event) error {
			if err := r.Deliveries.Renew(ctx); err != nil {
				t.Error(err)
			}
			if got := texts(ctx, t, db, `SELECT started_at, lease_until FROM processed_events`); got[0] != "1772323199999" || got[1] != "1772323259999" {
				t.Errorf("the claim is %q", got)
			}
			if fail {
				return errors.New("no")
			}
			return nil
		}, durable.WithBackoff(0))
		r.Publish("acme", eventName, nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		r.Deliver(w)
		if row := r.Row("acme", "mailer"); row.Attempts != 1 || row.Status != durable.Pending {
			t.Errorf("the failure was not written: %+v", row)
		}
		fail = false
		r.Deliver(w)
		got := texts(t.Context(), t, db, `SELECT status, delivered_at, created_at FROM event_deliveries`)
		if got[0] != "delivered" || got[1] != "2026-02-28 23:59:59.999999" || got[2] != got[1] {
			t.Errorf("the row is %q", got)
		}
		if n := r.Count("loam.claims.lost"); n != 0 {
			t.Errorf("%d outcomes were refused", n)
		}
	})
}
