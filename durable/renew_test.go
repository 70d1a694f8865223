package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: L-08, L-04. As long as claims are renewed, all of a process in one statement, nobody else runs their rows or finds
// them lost.
func TestARenewedClaimIsKept(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 3, paid, "mailer")
		done := background(r, ids...)
		for range ids {
			within(t, h.started, "a run")
		}
		other, _ := process(t, r, knows(r))
		var updates atomic.Int32
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "UPDATE processed_events") {
				updates.Add(1)
			}
			return nil
		})
		const rounds = 15 // five minutes
		for range rounds {
			r.Clock.Add(20 * time.Second)
			if err := r.Deliveries.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			lease := r.Clock.Now().UnixMilli() + rig.Lease.Milliseconds()
			for _, row := range r.Rows("acme") {
				if c := claimOf(t, db, row); c.Lease != lease || c.Status != "in_progress" {
					t.Fatalf("renewed: %+v, want the lease %d", c, lease)
				}
			}
			if n, err := other.Sweeper.LostClaims(t.Context()); n != 0 || err != nil {
				t.Fatalf("%d renewed claims taken for lost, %v", n, err)
			}
			ended(t, background(other, ids...), "another process's job")
		}
		if n := len(h.started); n != 0 || updates.Load() != rounds {
			t.Errorf("%d more runs, %d statements for %d renewals", n, updates.Load(), rounds)
		}
		for range ids {
			h.result <- nil
		}
		ended(t, done, "the end")
	})
}

// contract: L-08, L-02, L-03. Who finds its claim to be another's, or gone, cancels its handler, and does not touch the new
// claim; the outcome is refused and counted.
// model: 63
func TestALostClaimCancelsItsHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		b, _ := process(t, r)
		ha, hb := newHeld(t), newHeld(t)
		ha.mindful = true
		r.Registry.Register("mailer", paid, ha)
		b.Registry.Register("mailer", paid, hb)
		for i, taken := range []bool{true, false} {
			r.Publish("acme", paid, nil)
			row := r.Rows("acme")[i]
			first := background(r, row.ID)
			ctx := within(t, ha.started, "the run")
			var second <-chan error
			if taken {
				r.Clock.Add(rig.Lease + rig.Margin)
				second = background(b, row.ID)
				within(t, hb.started, "the run that took over")
			} else {
				rig.Exec(t, db, `DELETE FROM processed_events WHERE status = 'in_progress'`)
			}
			before := allRows(t, db)
			r.Clock.Add(5 * time.Second)
			if err := r.Deliveries.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			within(t, ctx.Done(), "the end of the handler's context")
			if !errors.Is(context.Cause(ctx), durable.ErrClaimLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			ended(t, first, "the outcome")
			if after := allRows(t, db); after != before {
				t.Errorf("the old owner changed something:\n%s\n%s", before, after)
			}
			if n := r.Count("loam.claims.lost"); n != int64(i+1) {
				t.Errorf("%d lost claims counted, want %d", n, i+1)
			}
			if taken {
				hb.result <- nil
				ended(t, second, "the outcome of the new claim")
				if row := r.Rows("acme")[i]; row.Status != durable.Delivered {
					t.Errorf("in the end %+v", row)
				}
			}
		}
	})
}

// contract: L-08. A claim that could not be renewed by 10 s before its end, on the process's own clock, cancels its handler.
// That spends no attempt, and the row is woken.
func TestAClaimNotRenewedInTimeIsGivenUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Now = time.Now })
		h := newHeld(t)
		h.mindful = true
		r.Registry.Register("mailer", paid, h, durable.WithTimeout(time.Hour))
		ids := publishMany(r, 1, paid, "mailer")
		done := background(r, ids...)
		ctx := within(t, h.started, "the run")
		broken := errors.New("the database is away")
		for n := range 9 { // three minutes; the last renewals fail
			<-time.After(20 * time.Second)
			if n >= 7 {
				faults.Before(func(dbtest.Op) error { return broken })
			}
			if err := r.Deliveries.Renew(t.Context()); (n >= 7) != errors.Is(err, broken) {
				t.Fatalf("renewal %d: %v", n, err)
			}
			if ctx.Err() != nil {
				t.Fatalf("cancelled after renewal %d: %v", n, context.Cause(ctx))
			}
		}
		faults.Before(nil)
		renewed := time.Now().Add(-40 * time.Second)
		<-ctx.Done()
		if after := time.Since(renewed); after != rig.Lease-rig.Margin || !errors.Is(context.Cause(ctx), durable.ErrClaimLost) {
			t.Errorf("cancelled %v after the last renewal, want 50s; cause %v", after, context.Cause(ctx))
		}
		ended(t, done, "the outcome")
		row, w := r.Row("acme", "mailer"), r.Wakeups.All()
		if row.Status != durable.Pending || row.Attempts != 0 || row.Unfinished != 1 || claims(t, r) != 0 { // it counts like a crash
			t.Errorf("afterwards %+v, %d claims", row, claims(t, r))
		}
		if len(w) != 1 || w[0].IDs[0] != row.ID || !w[0].At.IsZero() {
			t.Errorf("wake-ups %v", w)
		}
	})
}

// contract: L-08, D-20. A claim that was granted to somebody who is gone has no runner: nobody renews it, so it is found.
// model: 60
func TestAClaimWithoutARunnerIsNotRenewed(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 1, paid, "mailer")
		p := crash(t, r, ids[0]) // the process itself lives
		before := claimOf(t, db, r.Row("acme", "mailer"))
		r.Clock.Add(rig.Lease + rig.Margin)
		if err := p.Deliveries.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := claimOf(t, db, r.Row("acme", "mailer")); after != before || before.Status != "in_progress" {
			t.Fatalf("the claim was %+v, is %+v", before, after)
		}
		if n, err := p.Sweeper.LostClaims(t.Context()); n != 1 || err != nil {
			t.Fatalf("%d lost claims, %v", n, err)
		}
		done := background(r, r.Wakeups.All()[0].IDs...)
		within(t, h.started, "the run")
		h.result <- nil
		ended(t, done, "the end")
	})
}

// contract: L-08. A renewal that cannot look up the claims it did not get still counts for those that it got.
func TestARenewalThatCannotLookUpALostClaim(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Now = time.Now })
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h, durable.WithTimeout(time.Hour))
		ids := publishMany(r, 20, paid, "mailer")
		done := background(r, ids...)
		var ctxs []context.Context
		for range ids {
			ctxs = append(ctxs, within(t, h.started, "a run"))
		}
		rig.Exec(t, db, `DELETE FROM processed_events WHERE event_id IN (SELECT event_id FROM processed_events LIMIT 10)`)
		<-time.After(40 * time.Second)
		broken := errors.New("the database cannot be read")
		faults.Before(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "SELECT count(*) FROM processed_events") {
				return broken
			}
			return nil
		})
		if err := r.Deliveries.Renew(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Renew: %v", err)
		}
		faults.Before(nil)
		<-time.After(15 * time.Second) // 55 s after the claim, 15 s after the renewal
		lost := 0
		for _, ctx := range ctxs {
			if ctx.Err() != nil {
				lost++
			}
		}
		if lost != 10 {
			t.Errorf("%d of 20 handlers were cancelled; 10 claims were renewed", lost)
		}
		for range ids {
			h.result <- nil
		}
		ended(t, done, "the end")
	})
}

// contract: L-08. Renewals go before all other writes that wait.
func TestRenewalsGoFirst(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		h := newHeld(t)
		r.Registry.Register("mailer", paid, h)
		ids := publishMany(r, 1, paid, "mailer")
		done := background(r, ids...)
		within(t, h.started, "the run")
		r.Clock.Add(20 * time.Second)
		write := func(f func()) <-chan error {
			out := make(chan error, 1)
			go func() {
				out <- db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
					f()
					return nil
				})
			}()
			return out
		}
		release := make(chan bool)
		first := write(func() { <-release })
		synctest.Wait()
		var lease int64
		second := write(func() { lease = claimOf(t, db, r.Row("acme", "mailer")).Lease })
		synctest.Wait()
		renewed := make(chan error, 1)
		go func() { renewed <- r.Deliveries.Renew(t.Context()) }()
		synctest.Wait()
		close(release)
		for _, c := range []<-chan error{first, renewed, second} {
			if err := within(t, c, "a write"); err != nil {
				t.Fatal(err)
			}
		}
		if lease != r.Clock.Now().UnixMilli()+60_000 {
			t.Error("a write that came before the renewal, and waited, went before it")
		}
		h.result <- nil
		ended(t, done, "the end")
	})
}
