package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// received are events as a bus brings them.
func received(t *testing.T, r *rig.Rig, tenantID, name string, n int) []events.Event {
	t.Helper()
	evs := make([]events.Event, n)
	for i := range evs {
		e, err := events.New(r.Ctx(tenantID), name, events.Payload{"n": i}, rig.Limits)
		if err != nil {
			t.Fatal(err)
		}
		if evs[i], err = events.Queued(e.ID, e.Name, e.TenantID, string(e.JSON()), e.Headers.JSON()); err != nil {
			t.Fatal(err)
		}
	}
	return evs
}

// all returns the error that all results are, and fails the test if they differ.
func all(t *testing.T, results []error) error {
	t.Helper()
	for _, err := range results {
		if fmt.Sprint(err) != fmt.Sprint(results[0]) {
			t.Fatalf("results differ: %v", results)
		}
	}
	return results[0]
}

// What a bus brings becomes deliveries of this service's subscribers, once, however often it comes; also for those that only
// another process has. Nothing is left in event_queue.
//
// contract: N-06, D-24
// model: 229
func TestReceive(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		newer := r.Second()
		newer.Registry.RegisterFunc("newer", "billing.", nothing)
		newer.Registry.Seal()
		if err := newer.Deliveries.Announce(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		evs := received(t, r, "acme", paid, 3)
		for range 3 {
			if err := all(t, r.Queue.Receive(t.Context(), evs)); err != nil {
				t.Fatal(err)
			}
		}
		if rows := r.Rows("acme"); len(rows) != 6 {
			t.Errorf("%d deliveries, want two of each event", len(rows))
		}
		if err := all(t, r.Queue.Receive(t.Context(), received(t, r, "acme", "shop.order.paid", 2))); err != nil {
			t.Errorf("what nobody wants: %v", err)
		}
		if err := all(t, r.Queue.Receive(t.Context(), received(t, r, "elsewhere", "shop.order.paid", 2))); err != nil {
			t.Errorf("what nobody wants, of a tenant that is not here: %v", err)
		}
		if n := len(entries(t, r, outbox.Done)); n != 0 {
			t.Errorf("%d rows in event_queue", n)
		}
		r.Work()
		for _, row := range r.Rows("acme") {
			if delivered := row.Status == durable.Delivered; delivered != (row.SubscriberKey == "mailer") {
				t.Errorf("%s is %s", row.SubscriberKey, row.Status)
			}
		}
	})
}

// Each event has an answer of its own: one that can never be captured, and one that the database does not take, do not keep
// the others.
//
// contract: N-06, O-07
// model: 220
func TestReceiveAnswersForEach(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		evs := received(t, r, "acme", paid, 7)
		evs[2] = received(t, r, "elsewhere", paid, 1)[0]
		broken := errors.New("a constraint of somebody's")
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "INSERT INTO event_deliveries") && strings.Contains(fmt.Sprint(op.Args), evs[5].ID) {
				return broken
			}
			return nil
		})
		results := r.Queue.Receive(t.Context(), evs)
		faults.Before(nil)
		for i, err := range results {
			var ok bool
			switch i {
			case 2:
				ok = outbox.IsPermanent(err) && errors.Is(err, durable.ErrUnknownTenant)
			case 5:
				ok = errors.Is(err, broken) && !outbox.IsPermanent(err) && !outbox.IsUnavailable(err)
			default:
				ok = err == nil
			}
			if !ok {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if rows := r.Rows("acme"); len(rows) != 5 {
			t.Errorf("%d deliveries, want 5", len(rows))
		}
	})
}

// When this service's own database is away, or its clock is off, that is no fault of the events.
//
// contract: N-06, L-08
func TestReceiveWithTheDatabaseAway(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		evs := received(t, r, "acme", paid, 3)
		for _, away := range []error{database.ErrUnreachable, database.ErrFull, database.ErrConflict} {
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == "commit" {
					return away
				}
				return nil
			})
			if err := all(t, r.Queue.Receive(t.Context(), evs)); !outbox.IsUnavailable(err) || !errors.Is(err, away) {
				t.Errorf("with the error %v: %v", away, err)
			}
			if err := r.Queue.DeadLetter(t.Context(), letter(evs[0], "LOAM:1")); !outbox.IsUnavailable(err) || !errors.Is(err, away) {
				t.Errorf("a letter, with the error %v: %v", away, err)
			}
		}
		faults.Before(nil)
		cfg := r.Queue.Config
		cfg.Hold = func() bool { return true }
		held, err := outbox.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := all(t, held.Receive(t.Context(), evs)); !outbox.IsUnavailable(err) {
			t.Errorf("with a clock that is off: %v", err)
		}
		if n := len(r.Rows("acme")); n != 0 {
			t.Errorf("%d deliveries", n)
		}
	})
}

// Nobody can say for now which tenants there are: that is no fault of the events either.
//
// contract: N-06
func TestReceiveWithTheTenantsAway(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		evs := received(t, r, "acme", paid, 1)
		down := errors.New("the directory is down")
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "loam_tenants") {
				return down
			}
			return nil
		})
		if err := all(t, r.Queue.Receive(t.Context(), evs)); !outbox.IsUnavailable(err) || !errors.Is(err, down) {
			t.Errorf("with the tenants away: %v", err)
		}
		faults.Before(nil)
		if err := all(t, r.Queue.Receive(t.Context(), evs)); err != nil || len(r.Rows("acme")) != 1 {
			t.Errorf("afterwards: %v, %d deliveries", err, len(r.Rows("acme")))
		}
	})
}

// A transaction that the database has undone is made again, and the answers are those of the last time: the tenant has come in
// between.
//
// contract: N-06
func TestReceiveAsksAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		evs := append(received(t, r, "later", paid, 1), received(t, r, "acme", paid, 1)...)
		other, _ := dbtest.Again(t, db)
		commits := 0
		faults.Before(func(op dbtest.Op) error {
			switch {
			case op.Kind == "commit":
				if commits++; commits == 1 {
					return database.ErrConflict
				}
			case op.Kind == "begin" && commits == 1:
				rig.Exec(t, other, `INSERT INTO loam_tenants (id, created_at) VALUES ('later', $1)`, database.At(r.Clock.Now()))
			}
			return nil
		})
		if err := all(t, r.Queue.Receive(t.Context(), evs)); err != nil || commits != 2 {
			t.Errorf("%v, after %d commits", err, commits)
		}
		if n := len(r.Rows("later")) + len(r.Rows("acme")); n != 2 {
			t.Errorf("%d deliveries, want 2", n)
		}
	})
}

// With KeepReceived, a backfill finds what a bus brought.
//
// contract: D-19
func TestKeepReceived(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		cfg := r.Queue.Config
		cfg.KeepReceived = true
		keeping, err := outbox.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		evs := append(received(t, r, "acme", paid, 3), received(t, r, "acme", "shop.order.paid", 1)...)
		for range 2 {
			if err := all(t, keeping.Receive(t.Context(), evs)); err != nil {
				t.Fatal(err)
			}
		}
		past, err := r.Queue.Past(t.Context(), "acme", outbox.Place{CreatedAt: r.Clock.Now().Add(-time.Hour)}, r.Clock.Now().Add(time.Hour), 10)
		if err != nil || len(past.Events) != 4 {
			t.Errorf("%d past events, want 4; %v", len(past.Events), err)
		}
	})
}
