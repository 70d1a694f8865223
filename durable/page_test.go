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
	"github.com/openloam/loam/tenant"
)

// fill puts n rows of a state into a tenant, ids "PREFIX-000001" and up, the last change of each now, or after(n) of now.
func fill(r *rig.Rig, tenantID, prefix string, status durable.Status, n int, after ...func(i int) time.Duration) {
	r.T.Helper()
	const columns = `id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, last_error, delivered_at,
		next_attempt_at, created_at, updated_at`
	now := database.At(r.Clock.Now())
	rig.Insert(r.T, r.DB, "event_deliveries", columns, n, func(i int) []any {
		at, id := now, fmt.Sprintf("%s-%06d", prefix, i)
		if len(after) > 0 {
			at = database.At(now.Add(after[0](i)))
		}
		var delivered, next database.Time
		switch {
		case status == durable.Delivered:
			delivered = now
		case status == durable.Pending && i%3 > 0:
			next = at
		}
		return []any{id, tenantID, id, "mailer", paid, "loam", "{}", status, "*errors.errorString: no", delivered, next, now, at}
	})
}

func ids(p durable.Page) []string {
	var out []string
	for _, row := range p.Rows {
		out = append(out, row.ID)
	}
	return out
}

// contract: A-01. Rows of one dead time, as of a mass failure, are paged without gaps and without repetition, both ways,
// also while some are redelivered and others die between the pages.
// scenario: B192
func TestDeadPages(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]bool{"at rest": false, "while rows come and go": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) { pageThroughTheDead(t, rig.New(t, db), between) })
		})
	}
}

func pageThroughTheDead(t *testing.T, r *rig.Rig, between bool) {
	t.Helper()
	ctx := r.Ctx("acme")
	fill(r, "acme", "d", durable.Dead, 105)
	fill(r, "globex", "g", durable.Dead, 10)
	if between {
		r.Clock.Add(time.Second)
	}
	redelivered := map[string]bool{}
	seen := map[string]int{}
	q := durable.PageQuery{Status: durable.Dead, Limit: 50}
	var pages [][]string
	for {
		p, err := r.Deliveries.Page(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, ids(p))
		for _, id := range ids(p) {
			seen[id]++
		}
		if p.Newer != (len(pages) > 1 || between && q.Before != durable.Place{}) {
			t.Errorf("page %d: newer %v", len(pages), p.Newer)
		}
		if !p.Older {
			break
		}
		q.Before = p.Rows[len(p.Rows)-1].Place()
		if between { // five of this page, five of those to come; and new ones
			for _, id := range append(ids(p)[:5:5], fmt.Sprintf("d-%06d", 3+len(pages))) {
				if err := r.Deliveries.Redeliver(ctx, id); err != nil {
					t.Fatal(err)
				}
				redelivered[id] = true
			}
			fill(r, "acme", fmt.Sprintf("new%d", len(pages)), durable.Dead, 7)
		}
	}
	for i := 1; i <= 105; i++ {
		id := fmt.Sprintf("d-%06d", i)
		if n := seen[id]; n != 1 && (n != 0 || !redelivered[id]) {
			t.Errorf("between %v: %s was shown %d times", between, id, n)
		}
	}
	if !between && (len(pages) != 3 || len(pages[0]) != 50 || len(pages[1]) != 50 || len(pages[2]) != 5) {
		t.Errorf("pages of %d, %d, %d", len(pages[0]), len(pages[1]), len(pages[2]))
	}
	if between {
		return
	}
	// The way back shows the same pages.
	p, err := r.Deliveries.Page(ctx, durable.PageQuery{Status: durable.Dead, Limit: 50, After: durable.Place{At: database.At(r.Clock.Now()), ID: pages[2][0]}})
	if err != nil || !slices.Equal(ids(p), pages[1]) || !p.Newer || !p.Older {
		t.Errorf("back: %v, newer %v, older %v, %v", ids(p), p.Newer, p.Older, err)
	}
	p, err = r.Deliveries.Page(ctx, durable.PageQuery{Status: durable.Dead, Limit: 50, After: p.Rows[0].Place()})
	if err != nil || !slices.Equal(ids(p), pages[0]) || p.Newer || !p.Older {
		t.Errorf("back to the first: newer %v, older %v, %v", p.Newer, p.Older, err)
	}
}

// contract: A-01, T-03. Order and size of the sample of pending rows; what a list row carries; and no tenant, no rows.
func TestPendingPage(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		fill(r, "acme", "p", durable.Pending, 120, func(i int) time.Duration { return time.Duration(200-i) * time.Second })
		fill(r, "globex", "g", durable.Pending, 1)
		p, err := r.Deliveries.Page(r.Ctx("acme"), durable.PageQuery{Status: durable.Pending})
		if err != nil || len(p.Rows) != durable.SampleSize || p.Newer || p.Older {
			t.Fatalf("%d rows, %v", len(p.Rows), err)
		}
		var last time.Time
		for i, row := range p.Rows {
			if null := row.NextAttemptAt.IsZero(); null != (i < 40) || row.NextAttemptAt.Before(last) {
				t.Fatalf("row %d is due at %v, after %v", i, row.NextAttemptAt, last)
			}
			last = row.NextAttemptAt.Time
		}
		rig.Exec(t, db, `UPDATE event_deliveries SET last_error = $1, next_attempt_at = NULL WHERE id = 'p-000001'`, strings.Repeat("ä", 700))
		if p, err = r.Deliveries.Page(r.Ctx("acme"), durable.PageQuery{Status: durable.Pending, Limit: 1}); err != nil ||
			p.Rows[0].Error != strings.Repeat("ä", 600) || p.Rows[0].ErrorChars != 700 {
			t.Errorf("%+v, %v", p, err)
		}
		c, err := r.Deliveries.Counts(r.Ctx("acme"))
		if err != nil || c != (durable.Counts{Pending: 120}) {
			t.Errorf("%+v, %v", c, err)
		}
		none := context.Background()
		_, pageErr := r.Deliveries.Page(none, durable.PageQuery{Status: durable.Dead})
		_, countErr := r.Deliveries.Counts(none)
		_, inspectErr := r.Deliveries.Inspect(none, "p-000001")
		seenErr := r.Deliveries.RedeliverSeen(none, "p-000001", database.At(r.Clock.Now()))
		for _, err := range []error{pageErr, countErr, inspectErr, seenErr} {
			if !errors.Is(err, tenant.ErrMissingTenant) {
				t.Errorf("without a tenant: %v", err)
			}
		}
		if _, err := r.Deliveries.Inspect(r.Ctx("acme"), "g-000001"); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("another tenant's row: %v", err)
		}
		if err := r.Deliveries.RedeliverSeen(r.Ctx("acme"), "g-000001", database.At(r.Clock.Now())); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("another tenant's row: %v", err)
		}
	})
}

// contract: A-03. The condition is the row as it was seen, its state and its last change.
func TestRedeliverSeen(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		fill(r, "acme", "d", durable.Dead, 1)
		seen := database.At(r.Clock.Now())
		for _, other := range []database.Time{{}, database.At(seen.Add(time.Microsecond)), database.At(seen.Add(-time.Microsecond))} {
			if err := r.Deliveries.RedeliverSeen(r.Ctx("acme"), "d-000001", other); !errors.Is(err, durable.ErrChanged) {
				t.Errorf("seen at %v: %v", other, err)
			}
		}
		if err := r.Deliveries.RedeliverSeen(r.Ctx("acme"), "d-000001", seen); err != nil {
			t.Fatal(err)
		}
		if err := r.Deliveries.RedeliverSeen(r.Ctx("acme"), "d-000001", seen); !errors.Is(err, durable.ErrNotDead) {
			t.Errorf("twice: %v", err)
		}
		if n := len(r.Wakeups.All()); n != 1 {
			t.Errorf("%d wake-ups", n)
		}
	})
}

// What Inspect says about the run that goes on, and about who has the handler.
func TestInspect(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		running, end := make(chan struct{}), make(chan struct{})
		r.Registry.RegisterFunc("mailer", "billing.invoice.paid", func(context.Context, events.Event) error {
			close(running)
			<-end
			return nil
		}, durable.WithTimeout(90*time.Second))
		r.Publish("acme", "billing.invoice.paid", nil)
		id := r.Row("acme", "mailer").ID
		begun := r.Clock.Now().Truncate(time.Millisecond)
		done := make(chan int)
		go func() { done <- r.Work() }()
		<-running
		here, elsewhere := r, r.Second()
		inspect := func(in *rig.Rig) durable.Inspection {
			got, err := in.Deliveries.Inspect(in.Ctx("acme"), id)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		got := inspect(here)
		if !got.Started.Equal(begun) || got.Lost || got.Subscriber == nil || got.Subscriber.Timeout != 90*time.Second || !got.Alive {
			t.Errorf("while it runs: %+v", got)
		}
		if got = inspect(elsewhere); got.Subscriber != nil || got.Alive || !got.LastSeen.IsZero() {
			t.Errorf("in a process that does not have it, before any has said so: %+v", got)
		}
		if err := here.Deliveries.Announce(here.Ctx("acme"), true); err != nil {
			t.Fatal(err)
		}
		if got = inspect(elsewhere); !got.Alive || got.LastSeen.IsZero() {
			t.Errorf("in a process that does not have it: %+v", got)
		}
		r.Clock.Add(rig.Lease + rig.Margin) // not renewed
		if got = inspect(here); got.Lost {
			t.Error("this process says that its own run is lost")
		}
		if got = inspect(elsewhere); !got.Lost {
			t.Error("another process does not see that the run is lost")
		}
		r.Clock.Add(time.Hour)
		if got = inspect(elsewhere); got.Alive {
			t.Error("a process that was not heard of for an hour counts as alive")
		}
		close(end)
		<-done
		if got = inspect(here); !got.Started.IsZero() || got.Status != durable.Delivered {
			t.Errorf("after it: %+v", got)
		}
	})
}
