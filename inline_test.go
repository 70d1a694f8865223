package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/tenant"
)

// publishers are the two ways to publish. Each returns what Publish or PublishTx returned, and commits only if that was nil.
var publishers = map[string]func(ctx context.Context, e *loam.Engine, name string, p events.Payload) error{
	"Publish": func(ctx context.Context, e *loam.Engine, name string, p events.Payload) error {
		return e.Publish(ctx, name, p)
	},
	"PublishTx": func(ctx context.Context, e *loam.Engine, name string, p events.Payload) error {
		return e.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return e.PublishTx(ctx, tx, name, p) })
	},
}

// forEachPublisher runs f for both ways, each with an engine of its own that has one durable subscriber.
func forEachPublisher(t *testing.T, f func(t *testing.T, db *database.DB, e *loam.Engine, way string)) {
	t.Helper()
	for way := range publishers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				reg := durable.NewRegistry()
				reg.RegisterFunc("mailer", "shop.", succeed)
				f(t, db, newEngine(t, db, reg), way)
			})
		})
	}
}

// contract: E-03, E-04, E-07. Those that match run in order in the publisher's goroutine before it returns, the empty pattern gets
// every event, also one without a tenant or a durable subscriber; and nothing of them is stored.
func TestInlineSubscribers(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		var ran []string
		here := make([]byte, 32)
		here = here[:runtime.Stack(here, false)]
		for _, s := range [][2]string{{"all", ""}, {"shop", "shop."}, {"other", "other."}, {"exact", paid}, {"last", ""}} {
			e.Subscribe(s[1], func(ctx context.Context, ev events.Event) error {
				there := make([]byte, 32)
				if there = there[:runtime.Stack(there, false)]; !slices.Equal(here, there) {
					t.Errorf("%s ran in %q, the publisher's is %q", s[0], there, here)
				}
				if ev.TenantID != tenant.From(ctx) || ev.ActorID != "u1" || ev.Payload["actor_id"] != "u1" || ev.Payload["x"] != int64(1) {
					t.Errorf("%s got %+v", s[0], ev)
				}
				ran = append(ran, s[0])
				return nil
			})
		}
		for _, c := range []struct {
			tenant, name string
			want         []string
			rows         int
		}{
			{"acme", paid, []string{"all", "shop", "exact", "last"}, 1},
			{"", paid, []string{"all", "shop", "exact", "last"}, 1},
			{"unknown", paid, []string{"all", "shop", "exact", "last"}, 1},
			{"acme", "nobody.durable.here", []string{"all", "last"}, 1},
			{"acme", "shop.order.made", []string{"all", "shop", "last"}, 2},
		} {
			ran = nil
			ctx := tenant.WithActor(tenant.With(t.Context(), c.tenant), "u1")
			if err := publishers[way](ctx, e, c.name, events.Payload{"x": 1}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ran, c.want) {
				t.Errorf("%s in %q reached %q, want %q", c.name, c.tenant, ran, c.want)
			}
			stored(t, db, c.name, c.rows, c.rows)
		}
	})
}

// contract: E-05. Capture comes first: under Publish it is committed when inline subscribers run, under PublishTx it is in the
// transaction that they can reach, and nobody else sees it yet.
func TestCaptureComesFirst(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		ran := false
		e.Subscribe("", func(ctx context.Context, ev events.Event) error {
			ran = true
			var inside, outside int
			if err := db.Read().QueryRowContext(ctx, `SELECT count(*) FROM event_deliveries`).Scan(&outside); err != nil {
				t.Error(err)
			}
			if way == "Publish" {
				if ev.Tx() != nil || outside != 1 {
					t.Errorf("the transaction is %v; others see %d rows", ev.Tx(), outside)
				}
				return nil
			}
			if err := ev.Tx().QueryRowContext(ctx, `SELECT count(*) FROM event_deliveries`).Scan(&inside); err != nil || inside != 1 || outside != 0 {
				t.Errorf("in the transaction there are %d rows (%v), others see %d", inside, err, outside)
			}
			return nil
		})
		if err := publishers[way](inTenant(t), e, paid, nil); err != nil || !ran {
			t.Errorf("ran: %v, %v", ran, err)
		}
		stored(t, db, "afterwards", 1, 1)
	})
}

// contract: E-05. All run, whatever the others return; the error has all of theirs and says that the event was captured, which
// it was. Under PublishTx the caller rolls back on it, and all is undone.
func TestInlineErrors(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		errOne, errTwo := errors.New("one"), errors.New("two")
		ran := 0
		for _, err := range []error{errOne, nil, errTwo, nil} {
			e.Subscribe("shop.", func(context.Context, events.Event) error {
				ran++
				return err
			})
		}
		err := publishers[way](inTenant(t), e, paid, nil)
		var failed *events.SubscriberError
		if !errors.As(err, &failed) || !slices.Equal(failed.Errs, []error{errOne, errTwo}) || !errors.Is(err, errTwo) {
			t.Fatalf("got %v, want a SubscriberError with both", err)
		}
		if ran != 4 || failed.Name != paid || failed.ID == "" || !strings.Contains(err.Error(), "do not publish it again") {
			t.Errorf("%d of 4 ran: %v", ran, err)
		}
		if way == "PublishTx" {
			stored(t, db, "rolled back", 0, 0)
			return
		}
		stored(t, db, "captured", 1, 1)
		if rows := deliveries(inTenant(t), t, e); rows[0].EventID != failed.ID {
			t.Errorf("the error names the event %s, the row is of %s", failed.ID, rows[0].EventID)
		}
	})
}

// contract: E-06. A panic goes on into the publisher with its own value after the others have run. Publish has captured the event by
// then; under PublishTx it leaves InTx as a panic, and all is undone. Afterwards the engine works.
func TestInlinePanics(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		value := &struct{}{}
		ran := 0
		leave := e.Subscribe("", func(context.Context, events.Event) error { panic(value) })
		e.Subscribe("", func(context.Context, events.Event) error {
			ran++
			return errors.New("an error beside it")
		})
		func() {
			defer func() {
				if got := recover(); got != value {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = publishers[way](inTenant(t), e, paid, nil)
			t.Error("no panic")
		}()
		n := map[string]int{"Publish": 1, "PublishTx": 0}[way]
		stored(t, db, "after the panic", n, n)
		leave()
		var failed *events.SubscriberError
		if err := publishers[way](inTenant(t), e, paid, nil); !errors.As(err, &failed) || ran != 2 {
			t.Errorf("afterwards: %v, the other ran %d times", err, ran)
		}
	})
}

// contract: E-13. What an inline subscriber writes, neither the next one nor the stored row nor the caller sees.
// scenario: B009
func TestInlinePayloads(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		for range 2 {
			e.Subscribe("", func(_ context.Context, ev events.Event) error {
				if ev.Payload["x"] != "original" || len(ev.Payload) != 3 {
					t.Errorf("sees %v", ev.Payload)
				}
				ev.Payload["x"], ev.Payload["y"] = "written", 1
				return nil
			})
		}
		p := events.Payload{"x": "original"}
		if err := publishers[way](inTenant(t), e, paid, p); err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, `CAST(payload AS text) = '{"actor_id":null,"tenant_id":"acme","x":"original"}'`); n != 1 || p["x"] != "original" || len(p) != 1 {
			t.Errorf("%d rows have the original; the caller's is %v", n, p)
		}
	})
}

// contract: E-04, E-16. An inline subscriber may publish: under Publish in a transaction of its own, under PublishTx in the
// publisher's, which it reaches through the event. Publish there is refused at once.
func TestInlineSubscribersMayPublish(t *testing.T) {
	t.Parallel()
	forEachPublisher(t, func(t *testing.T, db *database.DB, e *loam.Engine, way string) {
		e.Subscribe(paid, func(ctx context.Context, ev events.Event) error {
			if ev.Tx() == nil {
				return e.Publish(ctx, "shop.receipt.made", nil)
			}
			for what, err := range map[string]error{
				"Publish":   e.Publish(ctx, "shop.receipt.made", nil),
				"InTx":      e.InTx(ctx, func(context.Context, *sql.Tx) error { return nil }),
				"AddTenant": e.AddTenant(ctx, "globex"),
			} {
				if !errors.Is(err, events.ErrInTransaction) {
					t.Errorf("%s: got %v, want ErrInTransaction", what, err)
				}
			}
			return e.PublishTx(ctx, ev.Tx(), "shop.receipt.made", nil)
		})
		if err := publishers[way](inTenant(t), e, paid, nil); err != nil {
			t.Fatal(err)
		}
		stored(t, db, "both", 2, 2)
	})
}
