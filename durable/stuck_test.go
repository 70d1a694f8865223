package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// onFakeTime runs f in a synctest bubble with a fresh SQLite database: for what real timers decide.
func onFakeTime(t *testing.T, f func(t *testing.T, db *database.DB, faults *dbtest.Faults)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, faults := dbtest.Open(t)
		f(t, db, faults)
	})
}

// contract: D-14, D-16. The handler's context ends at the subscriber's timeout, or at the engine's, and says so.
func TestHandlerHasADeadline(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.HandlerTimeout = 45 * time.Second })
		left := map[string]time.Duration{}
		causes := map[string]error{}
		register := func(key string, opts ...durable.Option) {
			r.Registry.RegisterFunc(key, "billing."+key+".done", func(ctx context.Context, _ events.Event) error {
				if end, ok := ctx.Deadline(); ok {
					left[key] = time.Until(end)
				}
				<-ctx.Done()
				causes[key] = context.Cause(ctx)
				return ctx.Err()
			}, opts...)
		}
		register("engine")
		register("own", durable.WithTimeout(90*time.Second))
		for key, want := range map[string]time.Duration{"engine": 45 * time.Second, "own": 90 * time.Second} {
			r.Publish("acme", "billing."+key+".done", nil)
			began := time.Now()
			go func() { // the claim is renewed, as the engine does
				for range 4 {
					<-time.After(20 * time.Second)
					if err := r.Deliveries.Renew(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}()
			r.Work()
			if took := time.Since(began); left[key] != want || took != want {
				t.Errorf("%s: %v to the deadline, ended after %v, want %v", key, left[key], took, want)
			}
			if !errors.Is(causes[key], durable.ErrTimeout) {
				t.Errorf("%s: the cause is %v", key, causes[key])
			}
			if row := r.Row("acme", key); row.Attempts != 1 || row.LastError != "context.deadlineExceededError: context deadline exceeded" {
				t.Errorf("%s: %+v, want one failure", key, row)
			}
			<-time.After(time.Minute)
		}
		wantCount(t, r, 0, "loam.handlers.stuck")
	})
}

// contract: D-14. nil is a success even past the deadline.
func TestNilPastTheDeadlineIsASuccess(t *testing.T) {
	t.Parallel()
	onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(ctx context.Context, _ events.Event) error {
			<-ctx.Done()
			<-time.After(time.Second)
			return nil
		}, durable.WithTimeout(3*time.Second))
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.Attempts != 0 || row.DurationMS != 4000 {
			t.Errorf("the row is %+v", row)
		}
		wantCount(t, r, 0, "loam.handlers.stuck")
	})
}

// contract: D-14, L-02, V-02. A handler that has not returned 5 s after its deadline is reported once, by metric and log,
// and its slot is free for others. Its claim is kept, so that no second copy runs here or elsewhere, however often it is
// woken; what it returns at last is written.
// scenario: B041
func TestStuckHandler(t *testing.T) {
	t.Parallel()
	for what, result := range map[string]error{"success": nil, "failure": codeError(1)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onFakeTime(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) { stuckHandler(t, db, result) })
		})
	}
}

func stuckHandler(t *testing.T, db *database.DB, result error) {
	t.Helper()
	r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 2 })
	other := r.Second()
	block := make(chan int)
	ran := make(chan string, 10)
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	for _, process := range []*rig.Rig{r, other} {
		process.Registry.RegisterFunc("hangs", "billing.invoice.paid", func(context.Context, events.Event) error {
			ran <- "hangs"
			<-block
			return result
		}, durable.WithTimeout(time.Second))
		process.Registry.RegisterFunc("normal", "billing.invoice.sent", func(context.Context, events.Event) error {
			ran <- "normal"
			return nil
		})
		process.Registry.RegisterFunc("waits", "billing.invoice.filed", func(context.Context, events.Event) error {
			entered <- struct{}{}
			<-leave
			return nil
		})
	}
	hanging := map[string]bool{}
	for range 2 {
		r.Publish("acme", "billing.invoice.paid", nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		hanging[w.IDs[0]] = true
		go r.Deliver(w)
	}
	synctest.Wait()
	r.Publish("acme", "billing.invoice.sent", nil)
	began := time.Now()
	r.Work() // no slot is free: it waits for one
	if took := time.Since(began); took != 6*time.Second {
		t.Errorf("the normal event waited %v, want the timeout of 1 s and 5 s", took)
	}
	if row := r.Row("acme", "normal"); row.Status != durable.Delivered {
		t.Errorf("the normal event is %s", row.Status)
	}
	synctest.Wait()
	wantCount(t, r, 2, "loam.handlers.stuck", "hangs")
	for id := range hanging {
		if n := len(r.Logs.Lines("ERROR", "stuck", "delivery="+id, "subscriber=hangs")); n != 1 {
			t.Errorf("%d lines say that %s is stuck, want one", n, id)
		}
	}

	// Three minutes of renewals and wake-ups, in both processes: well past a lease.
	for range 9 {
		<-time.After(20 * time.Second)
		r.Clock.Add(20 * time.Second)
		if err := r.Deliveries.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id := range hanging {
			for _, process := range []*rig.Rig{r, other} {
				if err := process.Deliveries.Deliver(process.Ctx("acme"), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.Wakeups.Clear()
	}
	if n := len(ran); n != 3 { // two that hang, one normal
		t.Errorf("handlers ran %d times, want 3: a second copy was started", n)
	}
	wantCount(t, r, 2, "loam.handlers.stuck")

	close(block)
	synctest.Wait()
	for _, row := range r.Rows("acme") {
		switch {
		case !hanging[row.ID]:
		case result == nil && (row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 1):
			t.Errorf("it returned nil: %+v", row)
		case result != nil && (row.Status != durable.Pending || row.Attempts != 1 || row.LastError != "durable_test.codeError: code 1"):
			t.Errorf("it returned an error: %+v", row)
		}
	}
	// The slots are two, as they were: none was given back twice.
	for range 3 {
		r.Publish("acme", "billing.invoice.filed", nil)
		go r.Work()
	}
	synctest.Wait()
	if n := len(entered); n != 2 {
		t.Errorf("%d handlers run at once, want 2", n)
	}
	close(leave)
	synctest.Wait()
	if n := len(entered); n != 3 {
		t.Errorf("%d handlers ran, want 3", n)
	}
}

// contract: D-14. nil is a success also after the contexts are cancelled: the handler's at shutdown, the caller's. The
// outcome is written all the same, and the handler does not run again.
// scenario: B010
func TestNilAfterCancelIsASuccess(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"shutdown", "the call's context", "both"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				ctx, cancel := context.WithCancel(r.Ctx("acme"))
				defer cancel()
				runs := 0
				r.Registry.RegisterFunc("mailer", "billing.", func(hctx context.Context, _ events.Event) error {
					runs++
					if what != "the call's context" {
						r.Deliveries.Cancel()
						<-hctx.Done()
					}
					if what != "shutdown" {
						cancel()
					}
					if what == "the call's context" && hctx.Err() != nil {
						t.Error("the end of the call's context ended the handler's")
					}
					return nil
				})
				r.Publish("acme", "billing.invoice.paid", nil)
				w, _ := r.Wakeups.Next(r.Clock.Now())
				if err := r.Deliveries.Deliver(ctx, w.IDs...); err != nil {
					t.Error(err)
				}
				if err := r.Deliveries.Wait(t.Context()); err != nil { // for the run; the call may end before it
					t.Error(err)
				}
				if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.Attempts != 0 || runs != 1 {
					t.Errorf("the row is %+v after %d runs", row, runs)
				}
				r.Clock.Add(time.Hour)
				if n := r.Work(); n != 0 || runs != 1 {
					t.Errorf("%d wake-ups and %d runs, want none more", n, runs)
				}
			})
		})
	}
}

// contract: D-12, D-14, L-03. An outcome that the database refuses is tried again until it is written, under the same claim:
// the handler does not run again, and the log says once that it began and once that it ended.
// scenario: B044
func TestOutcomeIsWrittenWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	for what, result := range map[string]error{"success": nil, "failure": codeError(1)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onFakeTime(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
				r := rig.New(t, db)
				runs, refused := 0, 0
				r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
					runs++
					faults.Before(func(op dbtest.Op) error {
						if op.Kind != "commit" || refused == 3 {
							return nil
						}
						refused++
						return errors.New("disk")
					})
					return result
				})
				r.Publish("acme", "billing.invoice.paid", nil)
				r.Work()
				row := r.Row("acme", "mailer")
				if result == nil && (row.Status != durable.Delivered || row.Attempts != 0) {
					t.Errorf("the row is %+v, want it delivered", row)
				}
				if result != nil && (row.Status != durable.Pending || row.Attempts != 1 || len(row.History()) != 1 || len(r.Wakeups.All()) != 1) {
					t.Errorf("the row is %+v with the wake-ups %v, want one failure", row, r.Wakeups.All())
				}
				if runs != 1 || row.Runs != 1 || row.Unfinished != 0 || refused != 3 {
					t.Errorf("%d runs (%d in the row), %d commits refused; want 1 and 3", runs, row.Runs, refused)
				}
				if began, ended := len(r.Logs.Lines("ERROR")), len(r.Logs.Lines("INFO", "succeeding again")); began != 1 || ended != 1 {
					t.Errorf("%d errors and %d ends of an outage in the log, want one of each", began, ended)
				}
				wantCount(t, r, 1, map[bool]string{true: "loam.deliveries.delivered", false: "loam.deliveries.failed"}[result == nil])
			})
		})
	}
}
