package loam_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox/natsjs"
)

// newBus is a service's bus. It is closed when the test ends, after the engines that are started later have stopped.
func newBus(t *testing.T, url, service string) *natsjs.Bus {
	t.Helper()
	bus, err := natsjs.New(natsjs.Config{URL: url, Service: service, AckWait: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Close(); err != nil {
			t.Log(err) // the broker may be away
		}
	})
	return bus
}

// A bus without the outbox is refused when the engine is made: there is no relay that could send.
//
// contract: O-05
func TestABusNeedsTheOutbox(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		text := refused(t, "a bus with direct capture", loam.Config{DB: db, Registry: durable.NewRegistry(), Bus: newBus(t, "", "shop")})
		if !strings.HasPrefix(text, "loam: Config: Capture: must be Outbox with a Bus") {
			t.Error(text)
		}
	})
}

// What the shop publishes reaches its own durable subscriber and that of another service, each once. A process that only
// publishes never connects. While the broker is away events wait, and health says since when; afterwards they go on.
//
// contract: O-05, O-06, N-06, V-02
func TestTwoServices(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		broker := natsserver.Start(t)
		ran := make(chan string, 100)
		service := func(name string, db *database.DB) *loam.Engine {
			reg := durable.NewRegistry()
			reg.RegisterFunc(name+".books", "shop.", func(_ context.Context, e events.Event) error {
				ran <- name + " " + e.Payload["order"].(string) //nolint:forcetypeassert // published below
				return nil
			})
			return startEngine(t, db, reg, func(c *loam.Config) { c.Capture, c.Bus = loam.Outbox, newBus(t, broker.URL(), name) })
		}
		billingDB, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, db.Dialect()))
		shop := service("shop", db)
		billing := service("billing", billingDB) // which sends nothing
		// Nobody listens there: a publish that connected would fail, or wait.
		publisher := newEngine(t, db, durable.NewRegistry(), func(c *loam.Config) {
			c.Capture, c.Bus = loam.Outbox, newBus(t, "nats://127.0.0.1:1", "shop")
		})
		got := map[string]int{}
		two := func() {
			t.Helper()
			for range 2 {
				select {
				case what := <-ran:
					got[what]++
				case <-time.After(60 * time.Second):
					t.Fatalf("only %v ran", got)
				}
			}
		}
		expect := func(order string) {
			t.Helper()
			if err := publisher.Publish(inTenant(t), "shop.order.placed", events.Payload{"order": order}); err != nil {
				t.Fatal(err)
			}
			two()
		}
		expect("A-1")
		if r := shop.Health(t.Context()); r.BusAway != 0 || len(r.Problems) > 0 {
			t.Errorf("all is well, and health says %+v", r)
		}
		broker.Down()
		if err := publisher.Publish(inTenant(t), "shop.order.placed", events.Payload{"order": "A-2"}); err != nil {
			t.Fatal(err)
		}
		for _, engine := range []*loam.Engine{shop, billing} {
			until(t, 60*time.Second, "seen as away", func() bool {
				r := engine.Health(t.Context())
				return r.BusAway > 0 && strings.Contains(strings.Join(r.Problems, "\n"), "The bus has not been reached for")
			})
		}
		broker.Up()
		expect("A-3")
		two() // and A-2, in whatever order
		for _, name := range []string{"shop A-1", "billing A-1", "shop A-2", "billing A-2", "shop A-3", "billing A-3"} {
			if got[name] != 1 || len(got) != 6 {
				t.Errorf("%s ran %d times, of %v", name, got[name], got)
			}
		}
		until(t, 60*time.Second, "seen as back", func() bool {
			return shop.Health(t.Context()).BusAway == 0 && billing.Health(t.Context()).BusAway == 0
		})
	})
}
