package durable_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// The functions that a stack must name.
func panicsWith(v any)  { panic(v) }
func endsItsGoroutine() { runtime.Goexit() }
func panicsInADefer()   { defer panicsWith("second"); panicsWith("first") }
func goexitsInADefer()  { defer endsItsGoroutine(); panicsWith("first") }
func panicsDeep(n int) {
	if n == 0 {
		panicsWith("deep")
	}
	panicsDeep(n - 1)
}
func panicsOnNil(p *declined)    { p.code = "x" }
func panicsOnIndex(s []int) int  { return s[len(s)] }
func panicsOnAssert(v any) error { return v.(error) }

// contract: D-13, D-18. A panic of any kind, and runtime.Goexit, is a failure like any other: counted, retried, its claim
// given back, with the stack kept where it happened.
// scenario: B038
func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	cases := []struct {
		what  string
		f     func()
		error string // in the text
		stack string // in the stack
	}{
		{"string", func() { panicsWith("boom") }, "boom", "panicsWith"},
		{"error", func() { panicsWith(errors.New("wrapped boom")) }, "wrapped boom", "panicsWith"},
		{"nil", func() { panicsWith(nil) }, "nil", "panicsWith"},
		{"nil pointer", func() { panicsOnNil(nil) }, "nil pointer dereference", "panicsOnNil"},
		{"index", func() { panicsOnIndex(nil) }, "out of range", "panicsOnIndex"},
		{"assertion", func() { _ = panicsOnAssert(1) }, "interface conversion", "panicsOnAssert"},
		{"NUL and half a rune", func() { panicsWith("a\x00b\xff") }, "a\uFFFDb\uFFFD", "panicsWith"},
		{"value whose methods panic", func() { panicsWith(hostile{func() { panic("again") }, func() {}}) }, "panic", "panicsWith"},
		{"value whose methods end the goroutine", func() { panicsWith(hostile{runtime.Goexit, func() {}}) }, ": ", "panicsWith"},
		{"Goexit", endsItsGoroutine, "Goexit", "endsItsGoroutine"},
		{"panic in a defer", panicsInADefer, "second", "panicsInADefer"},
		{"Goexit in a defer of a panic", goexitsInADefer, "Goexit", "goexitsInADefer"},
		{"deep", func() { panicsDeep(1000) }, "deep", "panicsDeep"},
		{"long", func() { panicsWith(strings.Repeat("\U0001F600", 5000)) }, "\U0001F600", "panicsWith"},
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 1 })
		for _, c := range cases {
			r.Registry.RegisterFunc(c.what, "billing.", func(context.Context, events.Event) error {
				c.f()
				return nil
			})
		}
		ran := 0
		r.Registry.RegisterFunc("healthy", "billing.", func(context.Context, events.Event) error { ran++; return nil })
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work() // one slot: each can only run if the one before gave it back

		for n, row := range r.Rows("acme")[:len(cases)] {
			c := cases[n]
			if row.Status != durable.Pending || row.Attempts != 1 || row.Runs != 1 || row.Unfinished != 0 || row.NextAttemptAt.IsZero() {
				t.Errorf("%s: the row is %+v", c.what, row)
			}
			if !strings.HasPrefix(row.LastError, "*durable.PanicError: ") || !strings.Contains(row.LastError, c.error) {
				t.Errorf("%s: last error %.200q, want *durable.PanicError: and %q", c.what, row.LastError, c.error)
			}
			h := row.History()
			if len(h) != 1 || h[0].Error != row.LastError {
				t.Errorf("%s: the history is %.500v", c.what, h)
				continue
			}
			if !strings.Contains(h[0].Stack, "durable_test."+c.stack) || len(h[0].Stack) > maxText {
				t.Errorf("%s: the stack (%d bytes) does not name %s:\n%.500s", c.what, len(h[0].Stack), c.stack, h[0].Stack)
			}
		}
		if r.Row("acme", "healthy").Status != durable.Delivered || ran != 1 {
			t.Errorf("beside the panics, a healthy handler ran %d times", ran)
		}
		var claims int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`, nil, &claims)
		if claims != 0 {
			t.Errorf("%d claims are left", claims)
		}
		if n := len(r.Wakeups.All()); n != len(cases) {
			t.Errorf("%d wake-ups for %d failures", n, len(cases))
		}
		wantCount(t, r, int64(len(cases)), "loam.deliveries.failed")
	})
}

// contract: D-10, D-13. The last attempt's panic parks the row.
func TestPanicOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { panicsWith("boom"); return nil },
			durable.WithMaxAttempts(1))
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Work()
		row := r.Row("acme", "mailer")
		if row.Status != durable.Dead || row.Attempts != 1 || row.LastError != "*durable.PanicError: panic: boom" {
			t.Errorf("the row is %+v", row)
		}
	})
}

// contract: T-03, T-04, D-13. Deliveries of two tenants, mixed over four slots, with panics between: each handler sees its
// row's tenant, in the context and in what it reads.
// scenario: B081
func TestTenantsMixedOverSlots(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db, func(c *durable.Config) { c.Concurrency = 4 })
		var mu sync.Mutex
		ran := map[string]int{}
		r.Registry.RegisterFunc("mailer", "billing.", func(ctx context.Context, e events.Event) error {
			want := e.Payload["want"]
			if tenant.From(ctx) != want || e.TenantID != want || e.Payload["tenant_id"] != want {
				t.Errorf("tenant %q in the context and %q on the event, want %v", tenant.From(ctx), e.TenantID, want)
			}
			rows, err := r.Deliveries.List(ctx, durable.Query{Limit: 3})
			if err != nil {
				t.Error(err)
			}
			for _, row := range rows {
				if row.TenantID != want {
					t.Errorf("a handler of %v reads a row of %s", want, row.TenantID)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if ran[e.ID]++; e.Payload["panics"] == true && ran[e.ID] == 1 {
				panicsWith("boom")
			}
			return nil
		})
		ids := []string{"acme", "globex"}
		publishAll(t, r, 200, func(n int) (string, events.Payload) {
			return ids[n%2], events.Payload{"want": ids[n%2], "panics": n%7 == 0}
		})
		for range 2 { // the second time those that panicked
			deliverAll(r, ids...)
			r.Clock.Add(time.Hour)
		}
		for _, id := range ids {
			for _, row := range r.Rows(id) {
				if row.Status != durable.Delivered {
					t.Errorf("a row of %s is %s: %s", id, row.Status, row.LastError)
				}
			}
		}
		twice := 0
		for _, n := range ran {
			twice += n - 1
		}
		if len(ran) != 200 || twice != 29 { // 0, 7, …, 196
			t.Errorf("%d events ran, %d of them again; want 200 and 29", len(ran), twice)
		}
	})
}
