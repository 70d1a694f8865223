package loam_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
)

// contract: E-07, E-08. No payload is an empty one: it is stored and delivered as an object with the two stamps, like {}. JSON
// that is no object is refused before anything is published.
// scenario: B141
func TestPublishWithoutAPayload(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var mu sync.Mutex
		seen := map[string][]events.Payload{}
		note := func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			seen[e.ID] = append(seen[e.ID], e.Payload)
			return nil
		}
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", note)
		engine := startEngine(t, db, reg)
		engine.Subscribe("shop.", note)
		parsed, err := events.ParsePayload([]byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		payloads := []events.Payload{nil, {}, parsed}
		for n, p := range payloads {
			if err := engine.Publish(inTenant(t), paid, p, events.WithID(killEvent(n))); err != nil {
				t.Fatal(err)
			}
			if len(p) != 0 {
				t.Errorf("the caller's payload is now %v", p)
			}
			// The same id with the other ways to say nothing is the same event.
			for _, same := range payloads {
				if err := engine.Publish(inTenant(t), "shop.order.empty", same, events.WithID(killEvent(100))); err != nil {
					t.Errorf("the same event again: %v", err)
				}
			}
		}
		for _, text := range []string{`[]`, `"null"`, `null`, `""`, ``, `0`, `[{}]`} {
			if p, err := events.ParsePayload([]byte(text)); !errors.Is(err, events.ErrInvalidPayload) || p != nil {
				t.Errorf("%q is the payload %v, %v", text, p, err)
			}
		}
		rows := len(payloads) + 1
		until(t, 30*time.Second, "delivered", func() bool { return count(t, db, "status = 'delivered' AND attempts = 0 AND runs = 1") == rows })
		if n := count(t, db, `CAST(payload AS text) = '{"actor_id":null,"tenant_id":"acme"}'`); n != rows || count(t, db, "true") != rows {
			t.Errorf("%d of %d rows have the empty payload", n, count(t, db, "true"))
		}
		mu.Lock()
		defer mu.Unlock()
		for n := range payloads {
			calls := seen[killEvent(n)]
			if len(calls) != 2 {
				t.Fatalf("event %d: %d calls, want one inline and one run", n, len(calls))
			}
			for _, got := range calls {
				if !maps.Equal(got, events.Payload{"tenant_id": "acme", "actor_id": nil}) {
					t.Errorf("event %d: a subscriber saw %#v", n, got)
				}
			}
		}
	})
}
