package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// wantRunAgain checks that a row is as if its run had not been, and is woken at once.
func wantRunAgain(t *testing.T, r *rig.Rig, id string, runs int) {
	t.Helper()
	row, err := r.Deliveries.Get(r.Ctx("acme"), id)
	if err != nil {
		t.Fatal(err)
	}
	if row.Status != durable.Pending || row.Attempts != 0 || row.Unfinished != 0 || row.LastError != "" || len(row.History()) != 0 ||
		row.Runs != runs || row.NextAttemptAt.After(r.Clock.Now()) {
		t.Errorf("the row is %+v, want it pending and due after %d runs without an attempt", row, runs)
	}
	woken := 0
	for _, w := range r.Wakeups.All() {
		for _, other := range w.IDs {
			if other == id && !w.At.After(r.Clock.Now()) {
				woken++
			}
		}
	}
	if woken != 1 {
		t.Errorf("row %s has %d wake-ups that are due, want one", id, woken)
	}
}

// contract: D-14, D-20, J-01. A run that shutdown cuts short spends no attempt, whatever error it returns, gives its claim
// back and is woken again. Five shutdowns in a row change nothing about that, and then all is delivered.
// scenario: B055
func TestShutdownSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	const handlers = 50
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		first := rig.New(t, db)
		register := func(r *rig.Rig, f func(n int) durable.HandlerFunc) {
			for n := range handlers {
				r.Registry.RegisterFunc(fmt.Sprintf("sub.%d", n), "billing.", f(n), durable.WithMaxAttempts(1))
			}
		}
		var ids []string
		for restart := range 5 {
			r := first.Second()
			started := make(chan struct{}, handlers)
			register(r, func(n int) durable.HandlerFunc {
				return func(ctx context.Context, _ events.Event) error {
					started <- struct{}{}
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), durable.ErrShutdown) {
						t.Errorf("the cause is %v", context.Cause(ctx))
					}
					if n%2 == 0 {
						return errors.New("could not finish")
					}
					return ctx.Err()
				}
			})
			if ids == nil {
				r.Publish("acme", "billing.invoice.paid", nil)
				for _, row := range r.Rows("acme") {
					ids = append(ids, row.ID)
				}
			}
			r.Wakeups.Clear()
			delivered := make(chan error)
			go func() { delivered <- r.Deliveries.Deliver(r.Ctx("acme"), ids...) }()
			for range handlers {
				<-started
			}
			r.Deliveries.Stop()
			r.Deliveries.Cancel()
			if err := r.Deliveries.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-delivered; err != nil {
				t.Error(err)
			}
			for _, id := range ids {
				wantRunAgain(t, r, id, restart+1)
			}
			var claims int
			rig.Scan(t, db, `SELECT count(*) FROM processed_events`, nil, &claims)
			if claims != 0 {
				t.Fatalf("after shutdown %d, %d claims are left", restart+1, claims)
			}
			wantCount(t, r, 0, "loam.deliveries.failed")
			wantCount(t, r, 0, "loam.claims.lost")
			if t.Failed() {
				return
			}
		}

		last := first.Second()
		register(last, func(int) durable.HandlerFunc { return returnNil })
		last.Work()
		for _, row := range last.Rows("acme") {
			if row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 6 {
				t.Errorf("at the end the row is %+v", row)
			}
		}
	})
}

// contract: D-14. After Stop nothing is claimed, here or by a call that waits for a slot; a run goes on, and its outcome is
// written.
func TestStopRefusesNewWork(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 1 })
		goOn := make(chan struct{})
		cancelled := false
		runs := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(ctx context.Context, _ events.Event) error {
			runs++
			<-goOn
			cancelled = ctx.Err() != nil
			return nil
		})
		deliver := func(id string) chan error {
			done := make(chan error, 1)
			go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), id) }()
			synctest.Wait()
			return done
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Publish("acme", "billing.invoice.paid", nil)
		rows := r.Rows("acme")
		runs1, waits := deliver(rows[0].ID), deliver(rows[1].ID)
		r.Deliveries.Stop()
		r.Deliveries.Stop()
		if err := <-waits; !errors.Is(err, durable.ErrStopping) {
			t.Errorf("the call that waited for a slot returned %v", err)
		}

		waited := make(chan error, 1)
		go func() { waited <- r.Deliveries.Wait(t.Context()) }()
		synctest.Wait()
		if len(waited) != 0 {
			t.Error("Wait has returned beside a handler that runs")
		}
		close(goOn)
		if err := errors.Join(<-runs1, <-waited); err != nil {
			t.Error(err)
		}
		if err := <-deliver(rows[1].ID); !errors.Is(err, durable.ErrStopping) {
			t.Errorf("a call after Stop, with a slot free, returned %v", err)
		}
		after := r.Rows("acme")
		if after[0].Status != durable.Delivered || cancelled || runs != 1 {
			t.Errorf("the run ended as %s, cancelled: %v, %d runs", after[0].Status, cancelled, runs)
		}
		if after[1] != rows[1] {
			t.Errorf("the other row was changed to %+v", after[1])
		}
	})
}

// contract: D-14. A claim that is granted while the engine shuts down is given back without a run.
func TestCancelBeforeTheRun(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			t.Error("the handler runs")
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		id := r.Row("acme", "mailer").ID
		r.Wakeups.Clear()
		r.Deliveries.Cancel()
		if err := r.Deliveries.Deliver(r.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		wantRunAgain(t, r, id, 1)
		if n := len(r.Spans.Ended()); n != 0 {
			t.Errorf("%d spans without a run", n)
		}
	})
}

// contract: D-13, D-14. What shutdown did not cut short is a failure as ever: a panic, an error from before the
// cancellation, one whose deadline was over first.
func TestFailureAroundShutdown(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		goOn := make(chan struct{})
		r.Registry.RegisterFunc("panics", "billing.", func(ctx context.Context, _ events.Event) error {
			<-ctx.Done()
			panicsWith("boom")
			return nil
		})
		r.Registry.RegisterFunc("early", "billing.", func(context.Context, events.Event) error {
			<-goOn
			return codeError(1)
		})
		r.Registry.RegisterFunc("late", "billing.", func(ctx context.Context, _ events.Event) error {
			<-ctx.Done() // its deadline
			<-time.After(4 * time.Second)
			return ctx.Err()
		}, durable.WithTimeout(time.Second))
		r.Publish("acme", "billing.invoice.paid", nil)
		go r.Work()
		synctest.Wait()
		r.Deliveries.Stop()
		close(goOn)
		<-time.After(2 * time.Second)
		r.Deliveries.Cancel()
		if err := r.Deliveries.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{
			"panics": "*durable.PanicError: panic: boom",
			"early":  "durable_test.codeError: code 1",
			"late":   "context.deadlineExceededError: context deadline exceeded",
		} {
			if row := r.Row("acme", key); row.Attempts != 1 || row.LastError != want {
				t.Errorf("%s: %d attempts, %q; want one with %q", key, row.Attempts, row.LastError, want)
			}
		}
	})
}

// contract: D-14, D-20. Wait gives up at its limit: the error says how many have not ended (handlers that do not return, an
// outcome that cannot be written), and the log names their deliveries. What comes later is not written, and the log says
// so; the claims stay, so that no copy runs before the lease is over.
func TestWaitHasALimit(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		block := make(chan struct{})
		hang := func(context.Context, events.Event) error { <-block; return nil }
		r.Registry.RegisterFunc("hangs", "billing.", hang)
		r.Registry.RegisterFunc("hangs.too", "billing.", hang)
		r.Registry.RegisterFunc("cannot.write", "billing.", func(ctx context.Context, _ events.Event) error { <-ctx.Done(); return nil })
		r.Publish("acme", "billing.invoice.paid", nil)
		go r.Work()
		synctest.Wait()
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				return errors.New("disk")
			}
			return nil
		})
		r.Deliveries.Stop()
		r.Deliveries.Cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		began := time.Now()
		err := r.Deliveries.Wait(ctx)
		if took := time.Since(began); err == nil || took != 7*time.Second {
			t.Fatalf("Wait returned %v after %v, want an error after 7 s", err, took)
		}
		if !strings.Contains(err.Error(), "3 ") {
			t.Errorf("the error is %q, want 3 in it, for 3 deliveries", err)
		}
		rows := r.Rows("acme")
		for _, row := range rows {
			if len(r.Logs.Lines("delivery="+row.ID)) == 0 {
				t.Errorf("no log line names %s, which has not ended", row.SubscriberKey)
			}
		}

		faults.Before(nil)
		close(block)
		synctest.Wait()
		for n, row := range r.Rows("acme") {
			if row != rows[n] || row.Status != durable.Pending || row.Unfinished != 1 {
				t.Errorf("the row became %+v", row)
			}
			if n := len(r.Logs.Lines("ERROR", "outcome not written", "delivery="+row.ID)); n != 1 {
				t.Errorf("%d lines say that the outcome of %s is not written, want one", n, row.SubscriberKey)
			}
		}
		var claims int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`, nil, &claims)
		if claims != 3 {
			t.Errorf("%d claims, want all kept", claims)
		}
	})
}
