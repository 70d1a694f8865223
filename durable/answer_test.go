package durable_test

import (
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: L-03, D-20. When the answer of the claim's commit is lost, the repeat finds what its owner took: with a fresh lease,
// the same token, and no second start counted.
// model: 62
func TestALostAnswerOfTheClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.CrashLimit = 1 })
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 2, paid, "mailer")
		first := r.Rows("acme")[0]
		start, lost := r.Clock.Now(), 0
		var one ledgerRow
		faults.After(func(op dbtest.Op) error {
			if op.Kind != "commit" || lost == 2 {
				return nil
			}
			if lost++; lost == 1 {
				one = claimOf(t, db, first)
			}
			r.Clock.Add(5 * time.Second)
			return errors.New("the answer is lost")
		})
		done := background(r, ids...)
		within(t, h.started, "the first run")
		within(t, h.started, "the second run")
		for _, row := range r.Rows("acme") {
			c := claimOf(t, db, row)
			if row.Runs != 1 || row.Unfinished != 1 {
				t.Errorf("%d starts counted, %d unfinished", row.Runs, row.Unfinished)
			}
			if c.Status != "in_progress" || c.Owner != one.Owner || c.Started != start.UnixMilli() ||
				c.Lease != start.Add(70*time.Second).UnixMilli() {
				t.Errorf("first claimed as %+v, then found as %+v", one, c)
			}
		}
		h.result <- nil
		h.result <- nil
		if err := within(t, done, "the outcome"); err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered || row.Unfinished != 0 {
				t.Errorf("in the end %+v", row)
			}
		}
		if n := r.Count("loam.claims.lost"); n != 0 || len(h.started) != 0 || len(r.Wakeups.All()) != 0 {
			t.Errorf("%d lost claims, %d more runs, wake-ups %v", n, len(h.started), r.Wakeups.All())
		}
	})
}

// contract: L-03, D-07. What the repeat finds is run only if its row is still pending, due and not paused; else the claim is
// given back.
// model: 10
func TestALostAnswerAndAChange(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		for i, change := range []string{
			`UPDATE event_deliveries SET status = 'dead'`,
			`UPDATE event_deliveries SET status = 'delivered'`,
			`UPDATE event_deliveries SET next_attempt_at = '9999-01-01 00:00:00.000000'`,
			`INSERT INTO loam_pauses VALUES ('acme', 'mailer', '2026-01-01')`,
		} {
			p, faults := process(t, r)
			h := newHeld(t)
			p.Registry.Register("mailer", paid, h)
			rig.Exec(t, db, `DELETE FROM event_deliveries`)
			p.Publish("acme", paid, nil)
			old := r.Row("acme", "mailer")
			lost := false
			faults.After(func(op dbtest.Op) error {
				if op.Kind != "commit" || lost {
					return nil
				}
				lost = true
				if claimOf(t, db, old).Status != "in_progress" {
					t.Errorf("change %d: there was no claim", i)
				}
				rig.Exec(t, db, change)
				return errors.New("the answer is lost")
			})
			if err := within(t, background(p, old.ID), "the end"); err != nil {
				t.Errorf("change %d: %v", i, err)
			}
			if len(h.started) != 0 || claimOf(t, db, old).Status != "" {
				t.Errorf("change %d: %d runs, ledger %+v", i, len(h.started), claimOf(t, db, old))
			}
		}
	})
}

// contract: L-03, D-08, D-09, D-10. An outcome whose commit fails is written again; one whose commit succeeded and whose answer
// was lost is recognised. Either way it is recorded, counted and woken once, and the claim is not taken for lost.
func TestALostAnswerOfTheOutcome(t *testing.T) {
	t.Parallel()
	type end struct {
		name     string
		result   error
		max      int
		cut      bool
		status   durable.Status
		attempts int
		wakeups  int
		counter  string
	}
	for _, tc := range []end{
		{"success", nil, 5, false, durable.Delivered, 0, 0, "loam.deliveries.delivered"},
		{"failure", errors.New("no"), 5, false, durable.Pending, 1, 1, "loam.deliveries.failed"},
		{"last failure", errors.New("no"), 1, false, durable.Dead, 1, 0, "loam.deliveries.dead"},
		{"cut short", nil, 5, true, durable.Pending, 0, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				for i, lost := range []bool{false, true} {
					p, faults := process(t, r)
					h := newHeld(t)
					h.mindful = true
					p.Registry.Register("mailer", paid, h, durable.WithMaxAttempts(tc.max))
					p.Publish("acme", paid, nil)
					r.Wakeups.Clear()
					row := r.Rows("acme")[i]
					done := background(p, row.ID)
					within(t, h.started, "the run")
					failed := false
					fail := func(op dbtest.Op) error {
						if op.Kind != "commit" || failed {
							return nil
						}
						failed = true
						return errors.New("the commit fails, or its answer is lost")
					}
					if lost {
						faults.After(fail)
					} else {
						faults.Before(fail)
					}
					if tc.cut {
						p.Deliveries.Cancel()
					} else {
						h.result <- tc.result
					}
					ended(t, done, "the outcome")
					row = r.Rows("acme")[i]
					if row.Status != tc.status || row.Attempts != tc.attempts || len(row.History()) != tc.attempts || row.Unfinished != 0 || row.Runs != 1 {
						t.Errorf("lost %v: %+v", lost, row)
					}
					if w := r.Wakeups.All(); len(w) != tc.wakeups || claims(t, r) != 0 {
						t.Errorf("lost %v: wake-ups %v, %d claims left", lost, w, claims(t, r))
					}
					if n := p.Count("loam.claims.lost"); n != 0 {
						t.Errorf("lost %v: its own claim is counted as lost", lost)
					}
					if tc.counter != "" && p.Count(tc.counter) != 1 {
						t.Errorf("lost %v: %s is %d, want 1", lost, tc.counter, p.Count(tc.counter))
					}
				}
			})
		})
	}
}
