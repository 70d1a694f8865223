package durable_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// The explicit-state model of the protocol has variants that break, each for want of one condition. The comment "model:" of
// a test names those whose condition it holds fast. The others are in renew_test.go, redeliver_test.go and package sweep.

// contract: D-07, L-02. What the worker saw before the claim is not what counts: another process has run the row, or an
// operator has changed it, between the look and the claim's transaction.
// model: 10, 11
func TestTheClaimReadsTheRowAgain(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		calls, failing := 0, true
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return nil
		})
		b, _ := process(t, r)
		b.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			if failing {
				return errors.New("no")
			}
			return nil
		})
		elsewhere := func(id string) {
			if err := b.Deliveries.Deliver(b.Ctx("acme"), id); err != nil {
				t.Error(err)
			}
		}
		for _, tc := range []struct {
			name    string
			failing bool
			between func(id string)
		}{
			{"it failed elsewhere", true, elsewhere},
			{"it was delivered elsewhere", false, elsewhere},
			{"it was parked", false, func(string) { rig.Exec(t, b.DB, `UPDATE event_deliveries SET status = 'dead'`) }},
			{"it was put off", false, func(string) {
				rig.Exec(t, b.DB, `UPDATE event_deliveries SET next_attempt_at = $1`, database.At(r.Clock.Now().Add(time.Hour)))
			}},
			{"it was deleted", false, func(string) { rig.Exec(t, b.DB, `DELETE FROM event_deliveries`) }},
			{"it was paused", false, func(string) {
				rig.Exec(t, b.DB, `INSERT INTO loam_pauses VALUES ('acme', 'mailer', '2026-01-01')`)
			}},
		} {
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
			r.Publish("acme", paid, nil)
			id := r.Row("acme", "mailer").ID
			failing = tc.failing
			var once sync.Once
			var before string
			var woken int
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == "begin" {
					once.Do(func() {
						tc.between(id)
						before, woken = allRows(t, b.DB), len(r.Wakeups.All())
					})
				}
				return nil
			})
			if err := r.Deliveries.Deliver(r.Ctx("acme"), id); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			faults.Before(nil)
			if calls != 0 {
				t.Fatalf("%s, and still the handler ran", tc.name)
			}
			if after := allRows(t, db); before == "" || after != before {
				t.Errorf("%s, and still something was written:\n%s\n%s", tc.name, before, after)
			}
			if n := len(r.Wakeups.All()); n != woken {
				t.Errorf("%s: %d more wake-ups", tc.name, n-woken)
			}
		}
	})
}

// contract: D-09. A failure adds one to what the row has now, not to what it had at the claim.
// model: 10
func TestAttemptsAreCountedInTheRow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		r.Publish("acme", paid, nil)
		done := background(r, r.Row("acme", "mailer").ID)
		within(t, h.started, "the run")
		rig.Exec(t, db, `UPDATE event_deliveries SET attempts = 2`)
		h.result <- errors.New("no")
		ended(t, done, "the outcome")
		row := r.Row("acme", "mailer")
		if want := row.UpdatedAt.Add(1800 * time.Second); row.Attempts != 3 || !row.NextAttemptAt.Equal(want) {
			t.Errorf("%d attempts, next %v, want 3 and %v", row.Attempts, row.NextAttemptAt, want)
		}
	})
}

// contract: L-02, L-03. An owner whose lease ran out and was taken over (it was suspended) writes nothing, and says so.
// model: 12
// scenario: B094
func TestTheOutcomeOfALostClaimIsRefused(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		b, _ := process(t, r)
		ha, hb := newHeld(t), newHeld(t)
		r.Registry.Register("mailer", paid, ha)
		b.Registry.Register("mailer", paid, hb)
		for i, late := range []error{nil, errors.New("late")} {
			r.Publish("acme", paid, nil)
			row := r.Rows("acme")[i]
			first := background(r, row.ID)
			within(t, ha.started, "the first run")
			r.Clock.Add(1801 * time.Second)
			second := background(b, row.ID)
			within(t, hb.started, "the run that took over")
			start, before := r.Clock.Now().Truncate(time.Microsecond), allRows(t, db)
			r.Clock.Add(4 * time.Second)
			ha.result <- late
			if err := within(t, first, "the late outcome"); err != nil {
				t.Fatal(err)
			}
			if after := allRows(t, db); after != before {
				t.Fatalf("the late outcome (%v) was written:\n%s\n%s", late, before, after)
			}
			if n, lines := r.Count("loam.claims.lost"), r.Logs.Lines("claim was lost", row.ID); n != int64(i+1) || len(lines) != 1 {
				t.Errorf("%d lost claims counted, logged %q", n, lines)
			}
			r.Clock.Add(5 * time.Second)
			hb.result <- errors.New("no")
			ended(t, second, "the second outcome")
			row = r.Rows("acme")[i]
			if row.Status != durable.Pending || row.Attempts != 1 || !row.NextAttemptAt.Equal(start.Add(time.Minute)) ||
				claimOf(t, db, row) != (ledgerRow{}) {
				t.Errorf("in the end: %+v, ledger %+v", row, claimOf(t, db, row))
			}
		}
	})
}

// contract: L-03. A second claim can begin in the millisecond of the first, when clocks differ or the first was short: the
// first one's outcome, repeated because its answer was lost, does not fit it, for the owner is another.
// model: 13, 15
func TestAnOldTokenDoesNotFitANewClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		for i, tc := range []struct {
			name     string
			apart    time.Duration
			cut      bool
			attempts int
		}{
			{"equal clocks, cut", 0, true, 0},
			{"equal clocks, failed", 0, false, 1},
			{"clocks apart, cut", time.Second, true, 0},
			{"clocks apart, failed", time.Second, false, 1},
		} {
			a, faults := process(t, r)
			b, _ := process(t, r, off(r, -tc.apart))
			ha, hb := newHeld(t), newHeld(t)
			ha.mindful = true
			a.Registry.Register("mailer", paid, ha, durable.WithBackoff(0))
			b.Registry.Register("mailer", paid, hb)
			a.Publish("acme", paid, nil)
			row := r.Rows("acme")[i]
			first := background(a, row.ID)
			within(t, ha.started, "the first run")
			one := claimOf(t, db, row)
			committed, answer := make(chan bool), make(chan bool)
			var once sync.Once
			faults.After(func(op dbtest.Op) (err error) {
				if op.Kind == "commit" {
					once.Do(func() {
						committed <- true
						<-answer
						err = errors.New("the answer is lost")
					})
				}
				return err
			})
			if tc.cut {
				a.Deliveries.Cancel()
			} else {
				ha.result <- errors.New("no")
			}
			within(t, committed, "the first outcome")
			r.Clock.Add(tc.apart)
			second := background(b, row.ID)
			within(t, hb.started, "the second run")
			two, before := claimOf(t, db, row), allRows(t, db)
			close(answer)
			ended(t, first, "the repeat of the first outcome")
			if two.Started != one.Started || two.Owner == one.Owner {
				t.Fatalf("%s: the claims are %+v and %+v", tc.name, one, two)
			}
			if after := allRows(t, db); after != before {
				t.Errorf("%s: the repeat changed the new claim or its row:\n%s\n%s", tc.name, before, after)
			}
			hb.result <- nil
			ended(t, second, "the second outcome")
			if row = r.Rows("acme")[i]; row.Status != durable.Delivered || row.Attempts != tc.attempts || row.Runs != 2 {
				t.Errorf("%s: in the end %s, %d attempts, %d runs", tc.name, row.Status, row.Attempts, row.Runs)
			}
		}
	})
}

// contract: L-08, L-04, L-01. A claim is taken over when its lease has been over for the margin by the clock of who comes, so
// that with clocks up to 10 s apart its owner's own clock says by then that it is over.
// model: 20, 23
// scenario: B096
func TestATakeoverWaitsForTheMargin(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls++
			return nil
		})
		for i, ahead := range []time.Duration{0, 5 * time.Second, 10 * time.Second} {
			r.Publish("acme", paid, nil)
			row := r.Rows("acme")[i]
			crash(t, r, row.ID)
			lease := time.UnixMilli(claimOf(t, db, row).Lease)
			b, _ := process(t, r, knows(r), off(r, ahead))
			r.Clock.Add(10 * time.Second)
			free := lease.Add(10 * time.Second)
			for _, before := range []time.Duration{free.Sub(r.Clock.Now().Add(ahead)) - time.Nanosecond, time.Nanosecond} {
				r.Wakeups.Clear()
				if err := b.Deliveries.Deliver(b.Ctx("acme"), row.ID); err != nil {
					t.Fatal(err)
				}
				if w := r.Wakeups.All(); calls != i || len(w) != 1 || !w[0].At.Equal(free) {
					t.Errorf("clock %v ahead, at %v: %d runs, deferred to %v, want %v", ahead, r.Clock.Now().Add(ahead), calls, w, free)
				}
				r.Clock.Add(before)
			}
			if r.Clock.Now().Before(lease) {
				t.Fatalf("clock %v ahead: the owner's lease is not over by its own clock", ahead)
			}
			r.Wakeups.Clear()
			if err := b.Deliveries.Deliver(b.Ctx("acme"), row.ID); err != nil {
				t.Fatal(err)
			}
			row = r.Rows("acme")[i]
			if calls != i+1 || row.Status != durable.Delivered || row.Attempts != 0 || row.Unfinished != 0 || len(r.Wakeups.All()) != 0 {
				t.Fatalf("clock %v ahead: %d runs, %+v", ahead, calls, row)
			}
		}
	})
}

// contract: D-14, J-01. A run that shutdown cuts short spends no attempt and wakes its row itself: no sweep is needed.
// model: 53
func TestAShutdownWakesWhatItCuts(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		stops, _ := process(t, r)
		h := newHeld(t)
		h.mindful = true
		stops.Registry.Register("mailer", paid, h)
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return nil })
		ids := publishMany(r, 1, paid, "mailer")
		done := background(stops, ids...)
		within(t, h.started, "the run")
		stops.Deliveries.Stop()
		stops.Deliveries.Cancel()
		ended(t, done, "the outcome")
		if row := r.Row("acme", "mailer"); row.Status != durable.Pending || row.Attempts != 0 || !row.NextAttemptAt.IsZero() || claims(t, r) != 0 {
			t.Errorf("cut: %+v", row)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 2 {
			t.Errorf("in the end %+v", row)
		}
	})
}
