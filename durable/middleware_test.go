package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

type ctxKey struct{}

// contract: V-01, D-13. Middlewares run around every run, the first outermost, see the delivery, pass a context on, and can
// change the error; a panic passes through them and is still contained.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var order []string
		note := func(name string) durable.Middleware {
			return func(ctx context.Context, d *durable.EventDelivery, next func(context.Context) error) error {
				order = append(order, name+" before "+d.SubscriberKey)
				defer func() { order = append(order, name+" after") }()
				err := next(context.WithValue(ctx, ctxKey{}, fmt.Sprint(ctx.Value(ctxKey{}), name)))
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			}
		}
		r := rig.New(t, db, func(cfg *durable.Config) { cfg.Middleware = []durable.Middleware{note("a"), note("b")} })
		var saw any
		r.Registry.RegisterFunc("mailer", "billing.invoice.paid", func(ctx context.Context, _ events.Event) error {
			saw = ctx.Value(ctxKey{})
			return errors.New("no")
		})
		r.Registry.RegisterFunc("crasher", "billing.invoice.voided", func(context.Context, events.Event) error { panic("oops") })
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		want := []string{"a before mailer", "b before mailer", "b after", "a after"}
		if !slices.Equal(order, want) || saw != "<nil>ab" {
			t.Fatalf("order %v, the handler saw %v", order, saw)
		}
		if got := r.Row("acme", "mailer").LastError; got != "*errors.errorString: a: b: no" {
			t.Errorf("last error %q", got)
		}
		order = nil
		r.Publish("acme", "billing.invoice.voided", nil)
		r.Work()
		if want := []string{"a before crasher", "b before crasher", "b after", "a after"}; !slices.Equal(order, want) {
			t.Errorf("with a panic: %v", order)
		}
		if row := r.Row("acme", "crasher"); row.LastError != "*durable.PanicError: panic: oops" || row.Attempts != 1 {
			t.Errorf("with a panic: %q, %d attempts", row.LastError, row.Attempts)
		}
		for _, s := range r.Spans.Ended() {
			if s.Name() != "durable_event_delivery" || s.Status().Description == "" {
				t.Errorf("span %s: %v", s.Name(), s.Status())
			}
		}
		if len(r.Spans.Ended()) != 2 {
			t.Errorf("%d spans, want one for each run", len(r.Spans.Ended()))
		}
	})
}
