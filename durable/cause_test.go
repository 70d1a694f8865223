package durable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// publish is what the engine's Publish does, without inline subscribers.
func publish(ctx context.Context, r *rig.Rig, name string, p events.Payload) error {
	e, err := events.New(ctx, name, p, rig.Limits)
	if err != nil {
		return err
	}
	return r.Deliveries.Capture(ctx, e)
}

// contract: E-15. A handler that publishes and then fails publishes the same events when it runs again; equal ones count.
// scenario: B014
func TestRepeatedRunPublishesOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("maker", "order.item.placed", func(ctx context.Context, _ events.Event) error {
			for _, p := range []events.Payload{{"n": 1}, {"n": 1}, {"n": 2}} {
				if err := publish(ctx, r, "order.item.made", p); err != nil {
					return err
				}
			}
			if runs++; runs < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		r.Registry.RegisterFunc("taker", "order.item.made", fine)
		r.Publish("acme", "order.item.placed", nil)
		r.Publish("acme", "order.item.placed", nil) // another event: its own three
		for range 4 {
			r.Work()
			r.Clock.Add(2 * time.Hour)
		}
		var ids []string
		for _, row := range r.Rows("acme") {
			if row.SubscriberKey == "taker" {
				ids = append(ids, row.EventID)
			}
		}
		slices.Sort(ids)
		if n := len(slices.Compact(ids)); n != 6 || runs < 4 {
			t.Fatalf("%d events made in %d runs, want 6", n, runs)
		}
	})
}

// contract: E-14. Events that cause each other without end are stopped at the limit, with the reason on the last row; the
// other tenant's events are not held up.
// scenario: B017
func TestDepthIsLimited(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("ping", "loop.a.ping", func(ctx context.Context, _ events.Event) error {
			return publish(ctx, r, "loop.a.pong", nil)
		}, durable.WithMaxAttempts(1))
		r.Registry.RegisterFunc("pong", "loop.a.pong", func(ctx context.Context, _ events.Event) error {
			return publish(ctx, r, "loop.a.ping", nil)
		}, durable.WithMaxAttempts(1))
		r.Publish("acme", "loop.a.ping", nil)
		r.Publish("globex", "loop.a.none", nil)
		r.Work()
		rows := r.Rows("acme")
		if len(rows) != events.DefaultMaxDepth+1 {
			t.Fatalf("%d events, want the first and %d more", len(rows), events.DefaultMaxDepth)
		}
		last := rows[len(rows)-1]
		if last.Status != durable.Dead || last.LastError != "*errors.errorString: "+events.ErrTooDeep.Error()+": the limit is 32" {
			t.Fatalf("the last is %s: %s", last.Status, last.LastError)
		}
	})
}

// contract: E-12. The first run is a child of the publisher's span, later runs and those after a redelivery are roots that
// link to it; each has a span of its own. Whose context delivers does not matter.
// scenario: B208 B210
func TestTraceTravels(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return errors.New("no") },
			durable.WithMaxAttempts(2))
		tracer := sdktrace.NewTracerProvider().Tracer("publisher")
		ctx, span := tracer.Start(r.Ctx("acme"), "request")
		if err := publish(ctx, r, "billing.invoice.paid", nil); err != nil {
			t.Fatal(err)
		}
		span.End()
		want := span.SpanContext()
		r.Work()
		r.Clock.Add(time.Hour)
		r.Work()
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), r.Row("acme", "mailer").ID); err != nil {
			t.Fatal(err)
		}
		r.Work()

		spans := r.Spans.Ended()
		if len(spans) != 3 {
			t.Fatalf("%d spans, want 3", len(spans))
		}
		ids := map[string]bool{}
		for i, s := range spans {
			ids[s.SpanContext().SpanID().String()] = true
			if i == 0 {
				if s.Parent().SpanID() != want.SpanID() || s.SpanContext().TraceID() != want.TraceID() || len(s.Links()) != 0 {
					t.Errorf("the first run is no child of the publisher: parent %v", s.Parent())
				}
				continue
			}
			if s.Parent().IsValid() || len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != want.SpanID() {
				t.Errorf("run %d: parent %v, links %v", i+1, s.Parent(), s.Links())
			}
		}
		if len(ids) != 3 {
			t.Error("two runs share a span id")
		}
	})
}

// contract: T-08. A tenant that is gone: its pending rows end dead with a reason, a run of them that goes on is refused, and
// the other tenants are swept in the same pass.
// scenario: B085
func TestRemovedTenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		runs := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { runs++; return nil })
		for range 3 {
			r.Publish("globex", "billing.invoice.paid", nil)
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		rig.Exec(t, db, `DELETE FROM loam_tenants WHERE id = 'globex'`)
		r.Work() // the wake-ups that are there: acme's runs, globex's are no-ops
		if runs != 1 {
			t.Fatalf("%d runs, want acme's only", runs)
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Wakeups.Clear()
		if _, err := r.Sweeper.All(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r.Work()
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered {
				t.Errorf("acme's row is %s", row.Status)
			}
		}
		for _, row := range r.Rows("globex") {
			if row.Status != durable.Dead || row.LastError != durable.RemovedReason || row.Attempts != 0 {
				t.Errorf("globex's row is %s: %s", row.Status, row.LastError)
			}
		}
		var left int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE tenant_id = 'globex'`, nil, &left)
		if left != 0 || len(r.Rows("globex")) != 3 {
			t.Errorf("%d ledger rows of %d deliveries are left", left, len(r.Rows("globex")))
		}
	})
}
