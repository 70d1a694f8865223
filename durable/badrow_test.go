package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-07, J-05. A row with a time that a hand has written, or that cannot be read at all, does not keep the rows
// that were woken with it.
func TestUnreadableRowAmongOthers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		unreadable := map[database.Dialect]string{database.SQLite: "2026-01-01 nonsense", database.PostgreSQL: "-infinity"}
		r := rig.New(t, db)
		ran := make(chan struct{}, 100)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { ran <- struct{}{}; return nil })
		for _, c := range []struct {
			time string
			runs int
		}{{"2026-01-01 00:00:00", 5}, {"2026-01-01T00:00:00Z", 5}, {unreadable[db.Dialect()], 4}} {
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
			for range 5 {
				r.Publish("acme", "billing.invoice.paid", nil)
			}
			var ids []string
			for _, row := range r.Rows("acme") {
				ids = append(ids, row.ID)
			}
			rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = '`+c.time+`' WHERE id = $1`, ids[2])
			err := r.Deliveries.Deliver(r.Ctx("acme"), ids...)
			if len(ran) != c.runs || (err == nil) != (c.runs == 5) {
				t.Errorf("%s: %d runs, want %d; %v", c.time, len(ran), c.runs, err)
			}
			for range len(ran) {
				<-ran
			}
		}
	})
}

// contract: S-05, D-12. When the database cannot be written, a sweep tries once for a tenant, and its error is short.
// scenario: B214
func TestSweepOfAFullDatabase(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", fine)
		for range 300 {
			r.Publish("acme", "billing.invoice.paid", nil)
			r.Publish("globex", "billing.invoice.paid", nil)
		}
		r.Wakeups.Clear()
		tries := 0
		r.Wakeups.Fail = func(durable.Wakeup) error { tries++; return fmt.Errorf("insert: %w", database.ErrFull) }
		_, err := r.Sweeper.All(t.Context(), "")
		if !errors.Is(err, database.ErrFull) || len(err.Error()) > 500 || tries != 2 {
			t.Errorf("%d tries, an error of %d bytes: %v", tries, len(err.Error()), err)
		}
	})
}

// contract: L-08, T-03. A lost claim of a subscriber that is paused is taken away once, and is not found again; after the
// pause the row runs.
func TestLostClaimOfAPausedSubscriber(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", fine)
		e := r.Publish("acme", "billing.invoice.paid", nil)
		r.Wakeups.Clear()
		rig.Exec(t, db, `INSERT INTO processed_events VALUES ('acme', $1, 'mailer', 'in_progress', 1, 1, 'dead', NULL)`, e.ID)
		rig.Exec(t, db, `INSERT INTO loam_pauses VALUES ('acme', 'mailer', '2026-01-01 00:00:00.000000')`)
		for i, want := range []int{1, 0, 0} {
			if n, err := r.Sweeper.LostClaims(t.Context()); n != want || err != nil {
				t.Fatalf("check %d found %d, %v", i+1, n, err)
			}
		}
		rig.Exec(t, db, `DELETE FROM loam_pauses`)
		if _, err := r.Sweeper.All(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered {
			t.Errorf("after the pause it is %s", row.Status)
		}
	})
}

// contract: S-01, S-05. A pass whose time is over goes on where it was: no tenant is left out for ever.
func TestPassGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", fine)
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Publish("globex", "billing.invoice.paid", nil)
		r.Wakeups.Clear()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2) // no more than one tenant's limit
		defer cancel()
		pass, err := r.Sweeper.All(ctx, "")
		if err != nil || pass.Next != "acme" || len(r.Wakeups.All()) != 1 {
			t.Fatalf("first: %+v, %v, wake-ups %v", pass, err, r.Wakeups.All())
		}
		pass, err = r.Sweeper.All(ctx, pass.Next)
		if err != nil || pass.Next != "" || len(r.Wakeups.All()) != 2 {
			t.Fatalf("second: %+v, %v, wake-ups %v", pass, err, r.Wakeups.All())
		}
	})
}

// contract: L-03, D-10. A failure whose commit was answered by an error is recognised: counted and logged once, not as a
// lost claim.
func TestLostAnswerOfAFailure(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			n := 0
			faults.After(func(op dbtest.Op) error {
				if op.Kind == "commit" {
					if n++; n == 1 {
						return errors.New("the answer is lost")
					}
				}
				return nil
			})
			return errors.New("no")
		}, durable.WithMaxAttempts(1))
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead || row.Attempts != 1 || len(row.History()) != 1 {
			t.Errorf("%s, %d attempts, history %v", row.Status, row.Attempts, row.History())
		}
		if f, d, l := r.Count("loam.deliveries.failed"), r.Count("loam.deliveries.dead"), r.Count("loam.claims.lost"); f != 1 || d != 1 || l != 0 {
			t.Errorf("%d failed, %d dead, %d claims lost", f, d, l)
		}
	})
}

// contract: L-03, D-20. A claim whose answers were all lost is given back, and its start taken back: nobody runs it, and the
// row is woken.
func TestClaimWithoutARunnerIsGivenBack(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", fine)
		r.Publish("acme", "billing.invoice.paid", nil)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		lost := errors.New("the answer is lost")
		tries := 0
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" && tries < 4 {
				tries++
				return lost
			}
			return nil
		})
		if err := r.Deliveries.Deliver(r.Ctx("acme"), w.IDs...); !errors.Is(err, lost) {
			t.Fatalf("Deliver: %v", err)
		}
		faults.After(nil)
		var claims int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events`, nil, &claims)
		row := r.Row("acme", "mailer")
		if claims != 0 || row.Unfinished != 0 || row.Runs != 0 || tries != 4 {
			t.Errorf("%d claims, %d unfinished, %d runs after %d tries", claims, row.Unfinished, row.Runs, tries)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.Runs != 1 {
			t.Errorf("then: %s, %d runs", row.Status, row.Runs)
		}
	})
}

// contract: J-05. Rows that were not granted give their slots back at once, not when the others have ended; a row that is
// not due or paused takes none.
func TestSlotsOfRowsNotGranted(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 2 })
		release, begun := make(chan struct{}), make(chan struct{}, 9)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { begun <- struct{}{}; <-release; return nil })
		for range 4 {
			r.Publish("acme", "billing.invoice.paid", nil)
		}
		rows := r.Rows("acme")
		other := r.Clock.Now().Add(time.Minute).UnixMilli()
		rig.Exec(t, db, `INSERT INTO processed_events VALUES ('acme', $1, 'mailer', 'in_progress', 1, $2, 'other', NULL)`, rows[1].EventID, other)
		rig.Exec(t, db, `UPDATE event_deliveries SET next_attempt_at = '2099-01-01 00:00:00.000000' WHERE id = $1`, rows[3].ID)
		done := make(chan error, 2)
		go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), rows[0].ID, rows[1].ID) }()
		<-begun
		go func() { done <- r.Deliveries.Deliver(r.Ctx("acme"), rows[2].ID) }()
		select {
		case <-begun:
		case <-time.After(20 * time.Second):
			t.Error("one handler runs, the limit is two, and the second waits")
		}
		// With both slots taken, a row that is not due does not wait for one.
		if err := r.Deliveries.Deliver(r.Ctx("acme"), rows[3].ID); err != nil {
			t.Error(err)
		}
		close(release)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
