package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-09, D-10. The schedule is that of the source: the waits after failures 1 to 4 are 60, 300, 1800 and 7200 s
// from the start of the run, to the microsecond, and the fifth failure is final.
func TestFailuresFollowTheSchedule(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", "billing.invoice.paid", func(context.Context, events.Event) error {
			runs++
			return errors.New("no")
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		for n, wait := range []time.Duration{60 * time.Second, 300 * time.Second, 1800 * time.Second, 7200 * time.Second} {
			start := r.Clock.Now().Truncate(time.Microsecond)
			r.Work()
			row := r.Row("acme", "mailer")
			if row.Status != durable.Pending || row.Attempts != n+1 || runs != n+1 {
				t.Fatalf("after failure %d: %s, %d attempts, %d runs", n+1, row.Status, row.Attempts, runs)
			}
			if want := start.Add(wait); !row.NextAttemptAt.Equal(want) {
				t.Fatalf("after failure %d: next attempt at %v, want %v", n+1, row.NextAttemptAt, want)
			}
			r.Clock.Add(wait - time.Microsecond)
			r.Work()
			if runs != n+1 {
				t.Fatalf("run %d came before it was due", n+2)
			}
			r.Clock.Add(time.Millisecond)
		}
		w, _ := r.Wakeups.Next(r.Clock.Now())
		r.Deliver(w) // and nothing after it, to see what it leaves
		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead || row.Attempts != 5 || runs != 5 || !row.NextAttemptAt.IsZero() {
			t.Fatalf("after failure 5: %s, %d attempts, %d runs, next attempt %v", row.Status, row.Attempts, runs, row.NextAttemptAt)
		}
		if len(r.Wakeups.All()) != 0 {
			t.Error("a dead row has wake-ups")
		}
	})
}

// contract: D-08, D-09, L-01, L-03, V-02. A failure's next attempt counts from the start of the run, a success is delivered
// when it ends, and it clears the error; attempts stay as they were.
func TestSuccessAfterAFailure(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		fail := errors.New("no")
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			r.Clock.Add(10 * time.Second) // it takes that long
			return fail
		})
		e := r.Publish("acme", "billing.invoice.paid", nil)
		start := r.Clock.Now()
		r.Work()
		row := r.Row("acme", "mailer")
		if row.Status != durable.Pending || row.Attempts != 1 || row.Unfinished != 0 || row.LastError != "*errors.errorString: no" {
			t.Errorf("after the failure: %+v", row)
		}
		if want := database.At(start.Add(60 * time.Second)); row.NextAttemptAt != want {
			t.Errorf("next attempt at %v, want %v", row.NextAttemptAt, want)
		}

		fail = nil
		r.Clock.Add(time.Minute)
		if n := r.Work(); n != 1 {
			t.Errorf("%d wake-ups, want one and none after the success", n)
		}
		row = r.Row("acme", "mailer")
		if row.Status != durable.Delivered || row.Attempts != 1 || row.Runs != 2 || row.Unfinished != 0 ||
			row.LastError != "" || !row.NextAttemptAt.IsZero() {
			t.Errorf("after the success: %+v", row)
		}
		if want := database.At(r.Clock.Now()); row.DeliveredAt != want || row.UpdatedAt != want {
			t.Errorf("delivered at %v, updated at %v, want %v", row.DeliveredAt, row.UpdatedAt, want)
		}
		if len(r.Wakeups.All()) != 0 {
			t.Errorf("wake-ups %v are left", r.Wakeups.All())
		}
		var done int64
		rig.Scan(t, db, `SELECT processed_at FROM processed_events WHERE status = 'done' AND tenant_id = 'acme' AND event_id = $1
			AND handler = 'mailer'`, []any{e.ID}, &done)
		if want := database.Millis(r.Clock.Now()); done != want {
			t.Errorf("done at %d, want %d", done, want)
		}
		wantCount(t, r, 1, "loam.deliveries.failed", "mailer")
		wantCount(t, r, 1, "loam.deliveries.delivered", "mailer")
		wantCount(t, r, 0, "loam.deliveries.dead")
	})
}

// contract: D-09, D-10. The row counts its attempts: the outcome adds to what is there, and goes by the sum.
func TestAttemptsGoByTheRow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		meanwhile := 0
		somebody := func() { rig.Exec(t, db, `UPDATE event_deliveries SET attempts = $1`, meanwhile) }
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			somebody()
			return errors.New("no")
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		meanwhile = 2
		start := r.Clock.Now()
		r.Work()
		row := r.Row("acme", "mailer")
		if want := database.At(start.Add(1800 * time.Second)); row.Status != durable.Pending || row.Attempts != 3 || row.NextAttemptAt != want {
			t.Errorf("%s, %d attempts, next at %v; want 3 attempts, and the third wait: %v", row.Status, row.Attempts, row.NextAttemptAt, want)
		}
		meanwhile = 4
		r.Clock.Add(time.Hour)
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Dead || row.Attempts != 5 {
			t.Errorf("%s, %d attempts, want it dead with 5", row.Status, row.Attempts)
		}
	})
}

// contract: D-08, L-01, V-02. An outcome whose row is gone is an error in the log and not a success in the metrics; the claim
// does not stay behind, and the worker goes on.
// scenario: B008
func TestOutcomeOfARowThatIsGone(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"deleted": `DELETE FROM event_deliveries WHERE id = $1`,
		"parked":  `UPDATE event_deliveries SET status = 'dead' WHERE id = $1`,
	} {
		for result, err := range map[string]error{"success": nil, "failure": errors.New("no")} {
			t.Run(what+" under a "+result, func(t *testing.T) {
				t.Parallel()
				dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
					r := rig.New(t, db)
					id := ""
					somebody := func() { rig.Exec(t, db, change, id) }
					r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
						if id == "" {
							return nil
						}
						somebody()
						id = ""
						return err
					})
					e := r.Publish("acme", "billing.invoice.paid", nil)
					gone := r.Row("acme", "mailer").ID
					id = gone
					if n := r.Work(); n != 1 {
						t.Errorf("%d wake-ups, want no other", n)
					}
					wantCount(t, r, 1, "loam.deliveries.gone", "mailer")
					wantCount(t, r, 0, "loam.deliveries.delivered")
					wantCount(t, r, 0, "loam.deliveries.failed")
					if n := len(r.Logs.Lines("ERROR", "delivery="+gone)); n != 1 {
						t.Errorf("%d error lines name the delivery, want one", n)
					}
					if len(r.Wakeups.All()) != 0 {
						t.Errorf("it is woken: %v", r.Wakeups.All())
					}
					for _, row := range r.Rows("acme") {
						if row.Status != durable.Dead || row.Attempts != 0 || row.LastError != "" {
							t.Errorf("the row was changed: %+v", row)
						}
					}
					// A success stays done, so that no copy of the row runs it again; a failure leaves nothing.
					want := map[bool]string{true: "done", false: ""}[err == nil]
					if got := rig.Dump(t, db, `SELECT status FROM processed_events WHERE event_id = $1`, e.ID); got != want {
						t.Errorf("the ledger says %q, want %q", got, want)
					}

					r.Publish("acme", "billing.invoice.paid", nil)
					r.Work()
					wantCount(t, r, 1, "loam.deliveries.delivered", "mailer")
				})
			})
		}
	}
}

// contract: L-03, D-09. A failure gives the claim back, so that the retry really runs the handler, with the same event.
// scenario: B092 (first half)
func TestRetryAfterAnErrorRunsTheHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var seen []string
		claims := func() (n int) {
			rig.Scan(t, db, `SELECT count(*) FROM processed_events`, nil, &n)
			return n
		}
		r.Registry.RegisterFunc("mailer", "billing.", func(_ context.Context, e events.Event) error {
			if n := claims(); n != 1 {
				t.Errorf("the handler runs under %d claims", n)
			}
			if seen = append(seen, e.ID); len(seen) == 1 {
				return errors.New("no")
			}
			return nil
		})
		e := r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		if n := claims(); n != 0 {
			t.Errorf("after the error, %d rows are in the ledger", n)
		}
		r.Clock.Add(61 * time.Second)
		r.Work()
		if len(seen) != 2 || seen[0] != e.ID || seen[1] != e.ID {
			t.Errorf("the handler saw %v, want %s twice", seen, e.ID)
		}
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered {
			t.Errorf("the row is %s", row.Status)
		}
		wantCount(t, r, 0, "loam.skipped", "done")
	})
}

// contract: D-09. A failure that is not the last never makes the row dead, not for a moment: looked at after every commit.
// scenario: B056
func TestRetriedRowIsNeverDead(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			if runs++; runs == 1 {
				return errors.New("no")
			}
			return nil
		})
		commits := 0
		faults.After(func(op dbtest.Op) error {
			if op.Kind != "commit" {
				return nil
			}
			commits++
			var dead int
			rig.Scan(t, db, `SELECT count(*) FROM event_deliveries WHERE status = 'dead'`, nil, &dead)
			if dead != 0 {
				t.Errorf("dead after commit %d", commits)
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 2 {
			r.Work()
			r.Clock.Add(61 * time.Second)
		}
		faults.After(nil)
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.Attempts != 1 || row.Runs != 2 {
			t.Errorf("the row is %+v", row)
		}
		if commits < 5 { // a capture, two claims, two outcomes
			t.Errorf("only %d commits were looked at", commits)
		}
		wantCount(t, r, 0, "loam.deliveries.dead")
	})
}
