package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// zombie begins a run whose handler ignores its context until the test ends, and returns its event.
func zombie(t *testing.T, r *rig.Rig) events.Event {
	t.Helper()
	release, begun := make(chan struct{}), make(chan struct{}, 10)
	t.Cleanup(func() { close(release) })
	r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
		begun <- struct{}{}
		<-release
		return nil
	}, durable.WithTimeout(20*time.Millisecond))
	e := r.Publish("acme", "billing.invoice.paid", nil)
	w, _ := r.Wakeups.Next(r.Clock.Now())
	ctx, cancel := context.WithCancel(r.Ctx("acme"))
	go func() { <-begun; cancel() }()
	if err := r.Deliveries.Deliver(ctx, w.IDs...); err != nil {
		t.Fatal(err)
	}
	return e
}

// contract: L-08, L-02. A claim that another process took over and lost in turn is found by a process whose handler still
// runs for the row without a claim: lost claims are told apart by their token.
func TestLostClaimBehindZombie(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		e := zombie(t, r)
		rig.Exec(t, db, `UPDATE processed_events SET owner = 'other', started_at = 5, lease_until = 6 WHERE event_id = $1`, e.ID)
		if n, err := r.Sweeper.LostClaims(t.Context()); n != 1 || err != nil {
			t.Fatalf("before the renewal: %d lost claims, %v", n, err)
		}
		if err := r.Deliveries.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Sweeper.LostClaims(t.Context()); n != 1 || err != nil {
			t.Fatalf("after the renewal: %d lost claims, %v", n, err)
		}
	})
}

// contract: J-03, L-08. A wake-up that meets a run of its own process ends: the run does what is needed. It does not wake
// itself again and again.
func TestWakeupForOwnRunEnds(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		zombie(t, r)
		r.Clock.Add(time.Hour) // its lease is over, and its renewal late
		id := r.Row("acme", "mailer").ID
		if err := r.Deliveries.Deliver(r.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		if w := r.Wakeups.All(); len(w) != 0 {
			t.Errorf("it was woken again: %v", w)
		}
		if row := r.Row("acme", "mailer"); row.Runs != 1 {
			t.Errorf("%d runs", row.Runs)
		}
	})
}

// contract: L-08. Two wake-ups of one row are in this process before either has claimed: the second does not take the claim
// of the first over, although its lease is over.
func TestNoTakeoverOfOwnClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 2 })
		release := make(chan struct{})
		starts := make(chan struct{}, 10)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			starts <- struct{}{}
			<-release
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		peeked := make(chan struct{}, 2)
		faults.After(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "ORDER BY d.id") {
				peeked <- struct{}{}
			}
			return nil
		})
		running := make(chan struct{})
		var begins atomic.Int32
		faults.Before(func(op dbtest.Op) error {
			if op.Kind != "begin" {
				return nil
			}
			switch begins.Add(1) {
			case 1: // both have looked
				<-peeked
				<-peeked
			case 2: // the first one's claim is in the table, and its lease over
				<-running
				r.Clock.Add(10 * time.Minute)
			}
			return nil
		})
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), w.IDs...) }()
		}
		<-starts
		close(running)
		if err := <-done; err != nil { // the second, which has nothing to do
			t.Fatal(err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if row := r.Row("acme", "mailer"); row.Runs != 1 || row.Status != durable.Delivered || len(starts) != 0 {
			t.Errorf("%d runs, %s, %d more starts", row.Runs, row.Status, len(starts))
		}
	})
}

// contract: L-08. One claim that is lost, and a read that fails, do not cancel the handlers whose claims were renewed.
//
//nolint:paralleltest // synctest forbids it
func TestRenewalOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, faults := dbtest.Open(t)
		r := rig.New(t, db)
		release, causes := make(chan struct{}), make(chan error, 10)
		r.Registry.RegisterFunc("mailer", "billing.", func(ctx context.Context, _ events.Event) error {
			select {
			case <-ctx.Done():
			case <-release:
			}
			causes <- context.Cause(ctx)
			return nil
		}, durable.WithTimeout(time.Hour))
		for range 10 {
			r.Publish("acme", "billing.invoice.paid", nil)
		}
		var ids []string
		rows := r.Rows("acme")
		for _, row := range rows {
			ids = append(ids, row.ID)
		}
		done := make(chan error, 1)
		go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), ids...) }()
		synctest.Wait()

		time.Sleep(30 * time.Second)
		rig.Exec(t, db, `DELETE FROM processed_events WHERE event_id = $1`, rows[0].EventID)
		failed := errors.New("read failed")
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "SELECT count(*) FROM processed_events") {
				return failed
			}
			return nil
		})
		if err := r.Deliveries.Renew(t.Context()); !errors.Is(err, failed) {
			t.Fatalf("Renew: %v", err)
		}
		faults.Before(nil)
		time.Sleep(rig.Lease - rig.Margin - 25*time.Second) // past the end that the claims had, before the one that they have
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		lost := 0
		for range 10 {
			if errors.Is(<-causes, durable.ErrClaimLost) {
				lost++
			}
		}
		if lost != 1 {
			t.Errorf("%d of 10 handlers were cancelled with ErrClaimLost, want the one whose claim is gone", lost)
		}
	})
}
