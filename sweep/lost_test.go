package sweep_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// process is another process over r's database, with a handle and faults of its own, and the code of r.
func process(t *testing.T, r *rig.Rig) (*rig.Rig, *dbtest.Faults) {
	t.Helper()
	db, faults := dbtest.Again(t, r.DB)
	base := *r
	base.DB = db
	return base.Second(func(c *durable.Config) { c.Registry = r.Registry }), faults
}

// crash is a process that claims the rows of a tenant and dies: the claims are committed, and nobody runs them.
func crash(t *testing.T, r *rig.Rig, tenantID string, ids ...string) {
	t.Helper()
	p, faults := process(t, r)
	faults.After(func(op dbtest.Op) error {
		if op.Kind != "commit" {
			return nil
		}
		killed := errors.New("killed")
		faults.Before(func(dbtest.Op) error { return killed }) // the dead do nothing more
		p.Deliveries.Stop()                                    // no second try
		return killed
	})
	if err := p.Deliveries.Deliver(r.Ctx(tenantID), ids...); err == nil {
		t.Fatal("the process did not die")
	}
	faults.After(nil)
	faults.Before(nil)
}

func lostClaims(t *testing.T, r *rig.Rig, want int) {
	t.Helper()
	if n, err := r.Sweeper.LostClaims(t.Context()); n != want || err != nil {
		t.Fatalf("%d lost claims found, %v; want %d", n, err, want)
	}
}

// contract: L-08, D-20, L-04. A process is killed and its jobs with it: its deliveries are woken when their claims may be taken over,
// not before, and run once. Suspects are woken alone. The check changes no row.
// model: 50
// scenario: B051, B096
func TestLostClaimsAreFound(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		for range 3 {
			r.Publish("acme", paid, nil)
		}
		r.Publish("globex", paid, nil)
		rows := r.Rows("acme")
		rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = 1 WHERE id = $1`, rows[1].ID)
		crash(t, r, "acme", rows[0].ID, rows[1].ID, rows[2].ID)
		crash(t, r, "globex", r.Rows("globex")[0].ID)
		r.Wakeups.Clear()
		var ms int64
		rig.Scan(t, db, `SELECT min(lease_until) FROM processed_events`, nil, &ms)
		free := time.UnixMilli(ms).Add(rig.Margin)
		before := dump(t, db)

		r.Clock.Add(10 * time.Second) // a wake-up of the same event comes from somewhere
		r.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{rows[0].ID}})
		r.Clock.Add(free.Sub(r.Clock.Now()) - time.Nanosecond)
		lostClaims(t, r, 0)
		if ids := woken(r); dump(t, db) != before || len(calls) != 0 || !slices.Equal(ids, []string{rows[0].ID}) {
			t.Fatalf("before the claims may be taken over: woken %v, ran %v", ids, calls)
		}
		r.Clock.Add(time.Nanosecond)
		lostClaims(t, r, 4)
		if dump(t, db) != before || len(r.Logs.Lines("WARN", "claims lost", "claims=4")) != 1 {
			t.Error("rows were changed, or nothing was logged")
		}
		for _, w := range r.Wakeups.All() {
			suspect := slices.Contains(w.IDs, rows[1].ID)
			if suspect != (w.Queue == durable.SuspectQueue) || suspect && len(w.IDs) != 1 || !w.At.IsZero() {
				t.Errorf("the wake-up %v", w)
			}
		}
		r.Work()
		lostClaims(t, r, 0)
		if len(calls) != 4 {
			t.Errorf("ran %v", calls)
		}
		for _, row := range append(r.Rows("acme"), r.Rows("globex")...) {
			if row.Status != durable.Delivered || row.Attempts != 0 || calls[row.EventID] != 1 {
				t.Errorf("%s, %d attempts, %d calls", row.Status, row.Attempts, calls[row.EventID])
			}
		}
	})
}

// contract: S-03. A job that is lost before its claim (its process was killed between fetch and claim) leaves no claim to be found:
// the sweep wakes its row.
// model: 51
func TestAJobLostBeforeItsClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		e := r.Publish("acme", paid, nil)
		if _, ok := r.Wakeups.Next(r.Clock.Now()); !ok { // fetched, and nothing done
			t.Fatal("no wake-up")
		}
		r.Clock.Add(5 * time.Minute)
		lostClaims(t, r, 0)
		if _, err := r.Sweeper.All(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if r.Work(); calls[e.ID] != 1 {
			t.Error("the row was never run")
		}
	})
}

// contract: L-03, L-08, D-17, D-20. A failure gives the claim back, so that the retry really runs. A process that dies between the
// effect and its record leaves the claim: after the lease the row runs again, once.
// scenario: B092
func TestAnEffectWithoutItsRecord(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		p, faults := process(t, r)
		effects, dying, failing := 0, false, true
		die := func() { // the database goes away, and then the process
			faults.Before(func(dbtest.Op) error {
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				if err := p.Deliveries.Wait(gone); err == nil {
					t.Error("the run has an outcome")
				}
				return errors.New("the database is away")
			})
		}
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			if failing {
				return errors.New("no")
			}
			effects++
			if dying {
				die()
			}
			return nil
		})
		r.Publish("acme", paid, nil)
		id := r.Row("acme", "mailer").ID
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Pending || row.Attempts != 1 {
			t.Fatalf("after the failure: %+v", row)
		}
		r.Clock.Add(time.Minute)
		failing, dying = false, true
		if err := p.Deliveries.Deliver(p.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		faults.Before(nil)
		if row := r.Row("acme", "mailer"); effects != 1 || row.Status != durable.Pending || row.Unfinished != 1 || row.Attempts != 1 {
			t.Fatalf("after the crash: %d effects, %+v", effects, row)
		}
		dying = false
		r.Wakeups.Clear()
		r.Clock.Add(rig.Lease + rig.Margin)
		lostClaims(t, r, 1)
		r.Work()
		r.Clock.Add(time.Hour)
		lostClaims(t, r, 0)
		r.Work()
		if row := r.Row("acme", "mailer"); effects != 2 || row.Status != durable.Delivered || row.Attempts != 1 || row.Unfinished != 0 {
			t.Errorf("in the end: %d effects, %+v", effects, row)
		}
	})
}

// contract: L-08. A lost claim whose row is gone, or final, is deleted; a renewed one is not; and one that this process runs is
// not lost to it.
func TestLostClaimsWithoutARow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		started, result := make(chan bool), make(chan bool)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			started <- true
			<-result
			return nil
		})
		for range 4 {
			r.Publish("acme", paid, nil)
		}
		rows := r.Rows("acme")
		crash(t, r, "acme", rows[0].ID, rows[1].ID, rows[2].ID)
		rig.Exec(t, db, `DELETE FROM event_deliveries WHERE id = $1`, rows[0].ID)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'delivered' WHERE id = $1`, rows[1].ID)
		done := make(chan error)
		go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), rows[3].ID) }()
		<-started
		r.Wakeups.Clear()
		r.Clock.Add(2 * time.Minute)
		lostClaims(t, r, 3)
		if ids := woken(r); !slices.Equal(ids, []string{rows[2].ID}) {
			t.Errorf("woken %v, want %s", ids, rows[2].ID)
		}
		left := rig.Dump(t, db, `SELECT event_id FROM processed_events ORDER BY event_id`)
		if want := rows[2].EventID + "\n" + rows[3].EventID; left != want {
			t.Errorf("claims left: %s, want %s", left, want)
		}
		other, _ := process(t, r)
		if n, err := other.Sweeper.LostClaims(t.Context()); n != 2 || err != nil {
			t.Errorf("another process finds %d, %v", n, err)
		}
		result <- true
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
