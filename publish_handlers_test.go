package loam_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: E-07, E-09, E-13. What an inline subscriber sees, a handler sees, value by value and type by type, in its first run and
// in the next; the stored text has every digit and every character.
// scenario: B146, B150, B153
func TestHandlersSeeWhatWasPublished(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var mu sync.Mutex
		var seen []events.Payload
		note := func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if seen = append(seen, e.Payload); len(seen) == 2 {
				return errors.New("the first run fails")
			}
			return nil
		}
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", note, durable.WithBackoff(0))
		engine := startEngine(t, db, reg)
		engine.Subscribe("shop.", note)
		raw, err := events.ParsePayload([]byte(`{"raw":616581622363398142,"pair":"\ud83d\ude00"}`))
		if err != nil {
			t.Fatal(err)
		}
		p := events.Payload{
			"id": 616581622363398142, "max": int64(math.MaxInt64), "min": int64(math.MinInt64), "big": uint64(math.MaxUint64),
			"f": 1.0, "yes": true, "none": nil, "u": "a&b, 1 < 2 > 0", "tenant_id": "forged",
		}
		maps.Copy(p, raw)
		if err := engine.Publish(inTenant(t), paid, p); err != nil {
			t.Fatal(err)
		}
		until(t, 30*time.Second, "delivered", func() bool { return count(t, db, "status = 'delivered'") == 1 })
		want := events.Payload{
			"id": int64(616581622363398142), "max": int64(9223372036854775807), "min": int64(-9223372036854775808),
			"big": uint64(18446744073709551615), "f": 1.0, "yes": true, "none": nil, "u": "a&b, 1 < 2 > 0",
			"raw": int64(616581622363398142), "pair": "😀", "tenant_id": "acme", "actor_id": nil,
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 3 {
			t.Fatalf("%d calls, want one inline and two runs", len(seen))
		}
		for i, got := range seen {
			if !maps.Equal(got, want) { // types too: the values are interfaces
				t.Errorf("call %d saw %#v\nwant %#v", i+1, got, want)
			}
		}
		var text string
		rig.Scan(t, db, `SELECT payload FROM event_deliveries`, nil, &text)
		const stored = `{"actor_id":null,"big":18446744073709551615,"f":1.0,"id":616581622363398142,"max":9223372036854775807,` +
			`"min":-9223372036854775808,"none":null,"pair":"😀","raw":616581622363398142,"tenant_id":"acme","u":"a&b, 1 < 2 > 0","yes":true}`
		if text != stored {
			t.Errorf("stored %s\nwant   %s", text, stored)
		}
	})
}

// contract: E-13. Handlers that write into the payload and handlers that read it, at the same time and of the same event: no
// race, everybody sees the original, and so does the retry.
// scenario: B009
func TestHandlersHaveTheirOwnPayload(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var writing sync.WaitGroup // both are in their handlers
		writing.Add(2)
		together := sync.OnceFunc(writing.Wait)
		run := 0
		reg := durable.NewRegistry()
		reg.RegisterFunc("writer", "shop.", func(_ context.Context, e events.Event) error {
			if run++; run == 1 {
				writing.Done()
				together()
			}
			if e.Payload["x"] != "original" || len(e.Payload) != 3 {
				t.Errorf("run %d of the writer sees %v", run, e.Payload)
			}
			for i := range 1000 {
				e.Payload["x"] = i
			}
			delete(e.Payload, "tenant_id")
			if run == 1 {
				return errors.New("once more")
			}
			return nil
		}, durable.WithBackoff(0))
		reg.RegisterFunc("reader", "shop.", func(_ context.Context, e events.Event) error {
			writing.Done()
			together()
			for range 1000 {
				if e.Payload["x"] != "original" {
					t.Errorf("the reader sees %v", e.Payload)
					break
				}
			}
			return nil
		})
		engine := startEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), paid, events.Payload{"x": "original"}); err != nil {
			t.Fatal(err)
		}
		until(t, 30*time.Second, "delivered", func() bool { return count(t, db, "status = 'delivered'") == 2 })
		if n := count(t, db, `CAST(payload AS text) = '{"actor_id":null,"tenant_id":"acme","x":"original"}'`); n != 2 || run != 2 {
			t.Errorf("%d of 2 stored payloads are the original; the writer ran %d times", n, run)
		}
	})
}
