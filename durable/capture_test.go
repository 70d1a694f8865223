package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// captureOn publishes on ctx, and returns the error: handlers and failing tests use it in place of Rig.Publish.
func captureOn(ctx context.Context, d *durable.Deliveries, name string, p events.Payload, opts ...events.PublishOption) error {
	e, err := events.New(ctx, name, p, rig.Limits, opts...)
	if err != nil {
		return err
	}
	return d.Capture(ctx, e)
}

// wantCount checks a counter.
func wantCount(t *testing.T, r *rig.Rig, want int64, name string, labels ...string) {
	t.Helper()
	if got := r.Count(name, labels...); got != want {
		t.Errorf("%s %v is %d, want %d", name, labels, got, want)
	}
}

// contract: D-04, V-02. One row per subscriber that matches, in the order of registration, and one wake-up for all.
func TestCaptureWritesARowPerSubscriber(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("z.last.letter", "billing.invoice.paid", returnNil)
		r.Registry.RegisterFunc("other", "shop.", returnNil)
		r.Registry.RegisterFunc("a.first.letter", "billing.", returnNil)
		e := r.Publish("acme", "billing.invoice.paid", events.Payload{"invoice_id": 42})

		rows := r.Rows("acme")
		if len(rows) != 2 || rows[0].SubscriberKey != "z.last.letter" || rows[1].SubscriberKey != "a.first.letter" {
			t.Fatalf("rows %+v, want z.last.letter and then a.first.letter", rows)
		}
		for _, row := range rows {
			if row.TenantID != "acme" || row.EventID != e.ID || row.EventName != "billing.invoice.paid" || row.Queue != "loam" {
				t.Errorf("row %+v", row)
			}
			if row.Payload != `{"actor_id":null,"invoice_id":42,"tenant_id":"acme"}` {
				t.Errorf("payload %s", row.Payload)
			}
			if row.Status != durable.Pending || row.Attempts != 0 || row.Runs != 0 || row.Unfinished != 0 || row.LastError != "" ||
				!row.NextAttemptAt.IsZero() || !row.DeliveredAt.IsZero() || len(row.History()) != 0 {
				t.Errorf("row %+v is not new", row)
			}
			if want := database.At(r.Clock.Now()); row.CreatedAt != want {
				t.Errorf("created at %v, want %v", row.CreatedAt, want)
			}
		}
		if n := len(r.Rows("globex")); n != 0 {
			t.Errorf("another tenant has %d rows", n)
		}
		wakeups := r.Wakeups.All()
		if len(wakeups) != 1 || wakeups[0].Tenant != "acme" || wakeups[0].Queue != "loam" || !wakeups[0].At.IsZero() ||
			len(wakeups[0].IDs) != 2 || wakeups[0].IDs[0] == wakeups[0].IDs[1] {
			t.Errorf("wake-ups %v, want one for both rows, at once", wakeups)
		}
		wantCount(t, r, 2, "loam.deliveries.captured")
		wantCount(t, r, 1, "loam.deliveries.captured", "a.first.letter")
	})
}

// contract: D-04, D-16. A wake-up has up to 100 rows of one queue. The number of subscribers has no limit, and their order
// is that of registration across the statements that it takes.
func TestCaptureOfManyRows(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		for n := range 1150 {
			opts := []durable.Option{}
			if n%10 == 0 {
				opts = append(opts, durable.WithQueue("slow"))
			}
			r.Registry.RegisterFunc(fmt.Sprintf("sub.%d", n), "billing.", returnNil, opts...)
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		rows := r.Rows("acme")
		if len(rows) != 1150 {
			t.Fatalf("%d rows, want 1150", len(rows))
		}
		queueOf := map[string]string{}
		for n, row := range rows {
			if want := fmt.Sprintf("sub.%d", n); row.SubscriberKey != want {
				t.Fatalf("row %d is for %s, want %s", n, row.SubscriberKey, want)
			}
			queueOf[row.ID] = row.Queue
		}
		sizes := map[string][]int{}
		for _, w := range r.Wakeups.All() {
			sizes[w.Queue] = append(sizes[w.Queue], len(w.IDs))
			for _, id := range w.IDs {
				if queueOf[id] != w.Queue {
					t.Errorf("row %s of queue %q is woken in %q, or twice", id, queueOf[id], w.Queue)
				}
				delete(queueOf, id)
			}
		}
		if len(queueOf) != 0 {
			t.Errorf("%d rows are not woken", len(queueOf))
		}
		// 1035 rows in queue loam, 115 in slow.
		for queue, want := range map[string][2]int{"loam": {11, 35}, "slow": {2, 15}} {
			got := sizes[queue]
			if len(got) != want[0] || got[len(got)-1] != want[1] {
				t.Errorf("queue %s: wake-ups of %v, want %d with %d rows in the last", queue, got, want[0], want[1])
				continue
			}
			for _, n := range got[:len(got)-1] {
				if n != 100 {
					t.Errorf("queue %s: wake-ups of %v, want all but the last full", queue, got)
					break
				}
			}
		}
	})
}

// contract: D-04, D-05, V-02. Rows and wake-ups are written in one transaction, its error reaches the publisher, and what was
// not written is not counted.
func TestCaptureIsAllOrNothing(t *testing.T) {
	t.Parallel()
	errDisk := errors.New("disk")
	wantNothing := func(t *testing.T, r *rig.Rig, err error) {
		t.Helper()
		if !errors.Is(err, errDisk) {
			t.Errorf("the publisher got %v", err)
		}
		if rows, wakeups := len(r.Rows("acme")), len(r.Wakeups.All()); rows != 0 || wakeups != 0 {
			t.Errorf("%d rows and %d wake-ups are left", rows, wakeups)
		}
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", returnNil)
		r.Registry.RegisterFunc("audit", "billing.", returnNil, durable.WithQueue("slow"))

		r.Wakeups.Fail = func(w durable.Wakeup) error {
			if w.Queue == "slow" { // the second wake-up
				return errDisk
			}
			return nil
		}
		wantNothing(t, r, captureOn(r.Ctx("acme"), r.Deliveries, "billing.invoice.paid", nil))
		wantCount(t, r, 0, "loam.deliveries.captured")
		r.Wakeups.Fail = nil

		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				return errDisk
			}
			return nil
		})
		err := captureOn(r.Ctx("acme"), r.Deliveries, "billing.invoice.paid", nil)
		faults.Before(nil)
		wantNothing(t, r, err)
		wantCount(t, r, 0, "loam.deliveries.captured")

		// In the caller's transaction the caller decides.
		e, err := events.New(r.Ctx("acme"), "billing.invoice.paid", nil, rig.Limits)
		if err != nil {
			t.Fatal(err)
		}
		wantNothing(t, r, db.InTx(r.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(r.Deliveries.CaptureTx(ctx, tx, e), errDisk)
		}))
		if err := db.InTx(r.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error {
			return r.Deliveries.CaptureTx(ctx, tx, e)
		}); err != nil {
			t.Fatal(err)
		}
		if rows, wakeups := len(r.Rows("acme")), len(r.Wakeups.All()); rows != 2 || wakeups != 2 {
			t.Errorf("%d rows and %d wake-ups, want 2 and 2", rows, wakeups)
		}
	})
}

// contract: D-04, V-02. An event that nobody subscribes to opens no transaction, and is counted.
func TestCaptureWithoutSubscriberWritesNothing(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", returnNil)
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "query" && strings.Contains(op.SQL, "FROM loam_subscribers") {
				return nil // others may have it
			}
			return fmt.Errorf("the database was used: %v", op)
		})
		err := captureOn(r.Ctx("acme"), r.Deliveries, "shop.order.placed", nil)
		faults.Before(nil)
		if err != nil {
			t.Error(err)
		}
		wantCount(t, r, 1, "loam.skipped", "no_subscriber")
	})
}

// contract: T-02. Without a tenant, or for one that does not exist, nothing is stored and it is no error. Each event is
// counted; a missing tenant is logged at debug, an unknown one at warn, once per id.
func TestCaptureWithoutATenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", returnNil)
		for _, id := range []string{"", "", "ghost", "ghost", "phantom", "ghost"} {
			if err := captureOn(tenant.With(t.Context(), id), r.Deliveries, "billing.invoice.paid", nil); err != nil {
				t.Errorf("tenant %q: %v", id, err)
			}
		}
		wantCount(t, r, 2, "loam.skipped", "no_tenant")
		wantCount(t, r, 4, "loam.skipped", "unknown_tenant")
		wantCount(t, r, 0, "loam.deliveries.captured")
		if n := len(r.Logs.Lines("DEBUG", "no tenant", "billing.invoice.paid")); n != 2 {
			t.Errorf("%d debug lines about a missing tenant, want 2", n)
		}
		for _, id := range []string{"ghost", "phantom"} {
			if n := len(r.Logs.Lines("WARN", "unknown tenant", "tenant="+id)); n != 1 {
				t.Errorf("%d warnings about %s, want 1", n, id)
			}
		}
		if n := len(r.Logs.Lines("WARN")); n != 2 {
			t.Errorf("%d warnings, want 2", n)
		}
		var rows int
		rig.Scan(t, db, `SELECT count(*) FROM event_deliveries`, nil, &rows)
		if rows != 0 || len(r.Wakeups.All()) != 0 {
			t.Errorf("%d rows and wake-ups %v are stored", rows, r.Wakeups.All())
		}
	})
}

// brokenDirectory is a tenant.Directory that cannot answer.
type brokenDirectory struct{ err error }

func (b brokenDirectory) Exists(context.Context, tenant.Querier, string) (bool, error) {
	return false, b.err
}
func (b brokenDirectory) List(context.Context, string, int) ([]string, error) { return nil, b.err }

// contract: T-02, T-06. An error of the directory is not taken for a missing tenant.
func TestCaptureWhenTheDirectoryFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		down := errors.New("the directory is down")
		r := rig.New(t, db, func(c *durable.Config) { c.Tenants = brokenDirectory{down} })
		r.Registry.RegisterFunc("mailer", "billing.", returnNil)
		if err := captureOn(r.Ctx("acme"), r.Deliveries, "billing.invoice.paid", nil); !errors.Is(err, down) {
			t.Errorf("the publisher got %v", err)
		}
		wantCount(t, r, 0, "loam.skipped")
	})
}

// contract: D-04, D-08, E-10. Equal events are events of their own, also in one transaction.
// scenario: B007
func TestEqualEventsInOneTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var mu sync.Mutex
		ran := map[string]int{}
		for _, key := range []string{"a", "b"} {
			r.Registry.RegisterFunc(key, "billing.", func(_ context.Context, e events.Event) error {
				mu.Lock()
				defer mu.Unlock()
				ran[key+" "+e.ID]++
				return nil
			})
		}
		publishAll(t, r, 10, func(int) (string, events.Payload) { return "acme", events.Payload{"user_id": 7} })
		deliverAll(r, "acme")
		ids := map[string]bool{}
		for _, row := range r.Rows("acme") {
			ids[row.ID] = true
			if row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 1 {
				t.Errorf("the row is %+v", row)
			}
		}
		if len(ids) != 20 || len(ran) != 20 {
			t.Errorf("%d rows and %d pairs of event and subscriber that ran, want 20", len(ids), len(ran))
		}
		for pair, n := range ran {
			if n != 1 {
				t.Errorf("%s ran %d times", pair, n)
			}
		}
	})
}
