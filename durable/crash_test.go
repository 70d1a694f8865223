package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-20. A start is counted with its claim, and taken back by every outcome: success, failure, a run cut short, parking,
// redelivery. A crash leaves it, and spends no attempt.
// scenario: B048
func TestUnfinishedStartsAreCounted(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var result error
		unfinished := -1 // while the handler runs
		look := func() { unfinished = r.Row("acme", "mailer").Unfinished }
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			look()
			return result
		})
		r.Publish("acme", paid, nil)
		id := r.Row("acme", "mailer").ID
		expect := func(when string, status durable.Status, attempts, unfinished int) {
			t.Helper()
			row := r.Row("acme", "mailer")
			if row.Status != status || row.Attempts != attempts || row.Unfinished != unfinished {
				t.Errorf("%s: %s, %d attempts, %d unfinished; want %s, %d, %d", when, row.Status, row.Attempts, row.Unfinished,
					status, attempts, unfinished)
			}
		}
		crashes := func(n int) {
			for range n {
				r.Clock.Add(rig.Lease + rig.Margin)
				crash(t, r, id)
			}
			r.Clock.Add(rig.Lease + rig.Margin)
		}
		alone := func(p *rig.Rig) {
			t.Helper()
			p.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{id}, Queue: durable.SuspectQueue})
		}
		crashes(3)
		expect("three crashes", durable.Pending, 0, 3)
		result = errors.New("no")
		alone(r)
		if expect("a failure", durable.Pending, 1, 0); unfinished != 4 {
			t.Errorf("while it ran: %d unfinished, want 4", unfinished)
		}
		for n := 2; n <= 4; n++ {
			r.Clock.Add(2 * time.Hour)
			alone(r)
		}
		r.Clock.Add(2 * time.Hour)
		crashes(1)
		expect("a crash in the last attempt", durable.Pending, 4, 1)
		if n, err := r.Sweeper.LostClaims(t.Context()); n != 1 || err != nil {
			t.Fatalf("lost claims: %d, %v", n, err)
		}
		r.Work()
		expect("the last attempt", durable.Dead, 5, 0)
		rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = 7`)
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		expect("redelivered", durable.Pending, 0, 0)
		crashes(2)
		p, _ := process(t, r)
		h := newHeld(t)
		h.mindful = true
		p.Registry.Register("mailer", paid, h)
		p.Deliveries.Cancel()
		alone(p)
		expect("cut short", durable.Pending, 0, 0)
		crashes(2)
		result = nil
		alone(r)
		expect("success", durable.Delivered, 0, 0)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending'; DELETE FROM processed_events`)
		crashes(2)
		old, _ := process(t, r)
		alone(old)
		expect("an unknown key", durable.Dead, 0, 0)
	})
}

// contract: D-20, D-25. A row that was in more crashes than the limit is parked with a reason; one that was in as many is run.
// Runs without an outcome count, and nothing else: not those that shutdown cut, nor those before a redelivery.
// model: 40, 41
func TestTheCrashLimit(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := 0
		handle := func(context.Context, events.Event) error {
			calls++
			return nil
		}
		for _, key := range []string{"ten", "eleven", "cut", "redelivered"} {
			r.Registry.RegisterFunc(key, "billing.invoice."+key, func(ctx context.Context, e events.Event) error { return handle(ctx, e) },
				durable.WithMaxAttempts(1))
		}
		publish := func(key string) string {
			r.Publish("acme", "billing.invoice."+key, nil)
			r.Wakeups.Clear()
			return r.Row("acme", key).ID
		}
		alone := func(p *rig.Rig, id string) {
			p.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{id}, Queue: durable.SuspectQueue})
		}
		id := publish("ten")
		rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = 10 WHERE id = $1`, id)
		alone(r, id)
		if row := r.Row("acme", "ten"); calls != 1 || row.Status != durable.Delivered {
			t.Errorf("after ten crashes: %d runs, %s", calls, row.Status)
		}
		id = publish("eleven")
		rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = 11, runs = 11 WHERE id = $1`, id)
		alone(r, id)
		row := r.Row("acme", "eleven")
		if calls != 1 || row.Status != durable.Dead || row.Attempts != 0 || row.Unfinished != 0 || row.Runs != 11 || !row.NextAttemptAt.IsZero() {
			t.Errorf("after eleven crashes: %d runs, %+v", calls, row)
		}
		if !strings.Contains(row.LastError, "11 times") || !strings.Contains(row.LastError, "10") || claimOf(t, db, row).Status != "" {
			t.Errorf("after eleven crashes: the reason is %q, ledger %+v", row.LastError, claimOf(t, db, row))
		}

		// With a limit of one, three runs that were cut and three that failed before a redelivery are no crashes.
		strict := func(c *durable.Config) { c.Registry, c.CrashLimit = r.Registry, 1 }
		id = publish("cut")
		for range 3 {
			p, _ := process(t, r, strict)
			p.Deliveries.Cancel()
			alone(p, id)
		}
		if row = r.Row("acme", "cut"); row.Status != durable.Pending || row.Runs != 3 {
			t.Fatalf("cut: %+v", row)
		}
		p, _ := process(t, r, strict)
		alone(p, id)
		if row = r.Row("acme", "cut"); row.Status != durable.Delivered {
			t.Errorf("taken for a crasher: %s, %q", row.Status, row.LastError)
		}
		id = publish("redelivered")
		handle = func(context.Context, events.Event) error { return errors.New("no") }
		for range 3 {
			alone(p, id)
			if err := p.Deliveries.Redeliver(p.Ctx("acme"), id); err != nil {
				t.Fatal(err)
			}
		}
		handle = func(context.Context, events.Event) error { return nil }
		alone(p, id)
		if row = r.Row("acme", "redelivered"); row.Status != durable.Delivered || row.Runs != 4 {
			t.Errorf("taken for a crasher: %s after %d runs, %q", row.Status, row.Runs, row.LastError)
		}
	})
}

// contract: D-20, J-05. From two crashes on a row is woken alone, in the queue with one worker, also when a wake-up brings it
// together with others; those are run, and not taken down by it.
func TestSuspectsAreWokenAlone(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var ran []string
		r.Registry.RegisterFunc("mailer", paid, func(_ context.Context, e events.Event) error {
			ran = append(ran, e.ID)
			return nil
		}, durable.WithConcurrency(1), durable.WithQueue("mail"))
		ids := publishMany(r, 5, paid, "mailer")
		for i, n := range []int{2, 0, 9, 1, 2} {
			rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = $1 WHERE id = $2`, n, ids[i])
		}
		before := r.Rows("acme")
		queues := func() string {
			var text strings.Builder
			for _, w := range r.Wakeups.All() {
				for _, id := range w.IDs {
					fmt.Fprint(&text, slices.Index(ids, id))
				}
				fmt.Fprint(&text, " in ", w.Queue, "; ")
			}
			return text.String()
		}
		if n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 500); n != 5 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		if got := queues(); got != "0 in loam_suspect; 13 in mail; 2 in loam_suspect; 4 in loam_suspect; " {
			t.Errorf("the sweep's wake-ups: %s", got)
		}
		r.Wakeups.Clear()
		r.Deliver(durable.Wakeup{Tenant: "acme", IDs: ids})
		if got := queues(); !strings.Contains(got, "0 in loam_suspect; 2 in loam_suspect; 4 in loam_suspect; ") || len(ran) != 1 {
			t.Errorf("a mixed wake-up: %s, %d ran", got, len(ran))
		}
		for i, row := range r.Rows("acme") {
			if i%2 == 0 && row != before[i] {
				t.Errorf("row %d was run with the others: %+v", i, row)
			}
		}
		r.Work()
		if len(ran) != 5 || len(r.Wakeups.All()) != 0 {
			t.Errorf("in the end %d ran, wake-ups %s", len(ran), queues())
		}
	})
}
