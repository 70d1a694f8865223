package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

func nothing(context.Context, events.Event) error { return nil }

// An enqueued event is one row until the relay comes; then each subscriber has a delivery, with the payload, the headers and
// the id of the event, and a wake-up that runs it. The row is done.
//
// contract: O-01, O-05
func TestAnEventGoesThroughTheQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var mu sync.Mutex
		ran := map[string]events.Event{}
		for _, key := range []string{"mailer", "ledger"} {
			r.Registry.RegisterFunc(key, "billing.", func(_ context.Context, e events.Event) error {
				mu.Lock()
				defer mu.Unlock()
				ran[key] = e
				return nil
			})
		}
		r.Registry.RegisterFunc("other", "shop.", nothing)
		e := r.Enqueue("acme", paid, events.Payload{"amount": 12.5, "n": int64(1) << 60})
		if rows := r.Rows("acme"); len(rows) != 0 {
			t.Fatalf("%d deliveries before the relay came", len(rows))
		}
		if n := r.Relay(); n != 1 {
			t.Fatalf("the relay dealt with %d rows, want 1", n)
		}
		rows := r.Rows("acme")
		if len(rows) != 2 || rows[0].EventID != e.ID || rows[0].Payload != string(e.JSON()) || rows[0].Status != durable.Pending {
			t.Fatalf("deliveries: %+v", rows)
		}
		if w := r.Wakeups.All(); len(w) != 1 || w[0].Tenant != "acme" || !slices.Equal(w[0].IDs, []string{rows[0].ID, rows[1].ID}) {
			t.Errorf("wake-ups: %+v", w)
		}
		r.Work()
		for _, key := range []string{"mailer", "ledger"} {
			if got := ran[key]; got.ID != e.ID || string(got.JSON()) != string(e.JSON()) || got.TenantID != "acme" {
				t.Errorf("%s got %+v", key, got)
			}
		}
		if done := entries(t, r, outbox.Done); len(done) != 1 || done[0].EventID != e.ID || done[0].Attempts != 0 {
			t.Errorf("rows that are done: %+v", done)
		}
		if n := r.Relay(); n != 0 || len(r.Rows("acme")) != 2 {
			t.Errorf("a second relay dealt with %d rows", n)
		}
	})
}

// The row is there if and only if its transaction commits. An event without a tenant, or of an unknown one, stores nothing.
//
// contract: O-01, T-02
// scenario: B001
func TestEnqueueIsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		undone := errors.New("undone")
		for _, c := range []struct {
			tenant string
			end    error
			want   int
		}{{"acme", undone, 0}, {"", nil, 0}, {"nobody", nil, 0}, {"acme", nil, 1}} {
			ctx := t.Context()
			if c.tenant != "" {
				ctx = r.Ctx(c.tenant)
			}
			e, err := events.New(ctx, paid, nil, rig.Limits)
			if err != nil {
				t.Fatal(err)
			}
			err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if err := r.Queue.Enqueue(ctx, tx, e); err != nil {
					return err
				}
				return c.end
			})
			if !errors.Is(err, c.end) || len(entries(t, r, outbox.Pending)) != c.want {
				t.Errorf("tenant %q: %v, %d rows, want %d", c.tenant, err, len(entries(t, r, outbox.Pending)), c.want)
			}
		}
		if n := r.Count("loam.skipped", "no_tenant") + r.Count("loam.skipped", "unknown_tenant"); n != 2 {
			t.Errorf("%d events counted as skipped, want 2", n)
		}
	})
}

// An id that the tenant has in the queue adds nothing, and with another payload it is refused; so it is when the row is gone
// and its deliveries are there: the row is dead_lettered then, and says why.
//
// contract: E-15, O-02
func TestARepeatedID(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		const id = "00000000-0000-7000-8000-000000000001"
		enqueue := func(p events.Payload) error {
			e, err := events.New(r.Ctx("acme"), paid, p, rig.Limits, events.WithID(id))
			if err != nil {
				t.Fatal(err)
			}
			return db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return r.Queue.Enqueue(ctx, tx, e) })
		}
		for i := range 3 {
			if err := enqueue(events.Payload{"n": 1}); err != nil {
				t.Fatal(err)
			}
			if err := enqueue(events.Payload{"n": 2}); !errors.Is(err, events.ErrIDReused) {
				t.Fatalf("another payload, time %d: %v", i, err)
			}
			r.Relay()
		}
		r.Enqueue("globex", paid, events.Payload{"n": 2}, events.WithID(id)) // another tenant's
		r.Relay()
		if a, b := len(r.Rows("acme")), len(r.Rows("globex")); a != 1 || b != 1 {
			t.Fatalf("%d and %d deliveries, want one each", a, b)
		}
		rig.Exec(t, db, `DELETE FROM event_queue`)
		for _, n := range []int{1, 2} {
			if err := enqueue(events.Payload{"n": n}); err != nil {
				t.Fatal(err)
			}
			r.Relay()
			rig.Exec(t, db, `DELETE FROM event_queue WHERE status = 'done'`)
		}
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != 1 || !strings.Contains(dead[0].LastError, "another payload") || len(r.Rows("acme")) != 1 {
			t.Errorf("dead_lettered: %+v", dead)
		}
	})
}

// What cannot be read is dead_lettered with the reason, in the same pass in which the others are captured: also rows that a
// foreign writer has made. A row without an id is captured; one without a tenant is its payload's.
//
// contract: O-02, O-07
// scenario: B118
func TestRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		r.Enqueue("acme", paid, events.Payload{"first": true})
		cases := []struct{ tenant, event, payload, id, want string }{
			{"acme", paid, "", "", "must be a JSON object"},
			{"acme", paid, "{bad", "", "not JSON"},
			{"acme", paid, `[1]`, "", "must be a JSON object"},
			{"acme", paid, `{"a": {"b": 1}}`, "", "nested object"},
			{"acme", paid, `{"a": "\ud800"}`, "", "surrogate"},
			{"acme", "paid", `{}`, "", "invalid event name"},
			{"acme", "", `{}`, "", "invalid event name"},
			{"", paid, `{}`, "", "names a tenant"},
			{"", paid, `{"tenant_id": 7}`, "", "names a tenant"},
			{"acme", paid, `{"tenant_id": "globex"}`, "", `its payload says "globex"`},
			{"nobody", paid, `{}`, "", "tenant is not known"},
			{"acme", paid, `{}`, "no-uuid", "must be a UUID"},
		}
		for _, c := range cases {
			null := func(s string) any {
				if s == "" {
					return nil
				}
				return s
			}
			foreign(t, db, "tenant_id, event_type, payload, event_id", "$1, $2, $3, $4", null(c.tenant), null(c.event), null(c.payload), null(c.id))
		}
		foreign(t, db, "event_type, payload", "$1, $2", paid, `{"tenant_id": "globex", "n": 9007199254740993}`)
		foreign(t, db, "tenant_id, event_type, payload, headers", "'acme', $1, '{}', 'no JSON'", paid)
		if n := r.Relay(); n != len(cases)+3 {
			t.Errorf("the pass dealt with %d rows, want %d", n, len(cases)+3)
		}
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != len(cases) {
			t.Fatalf("%d rows are dead_lettered, want %d: %+v", len(dead), len(cases), dead)
		}
		for i, c := range cases {
			if !strings.Contains(dead[i].LastError, c.want) {
				t.Errorf("%+v: %q, want %q", c, dead[i].LastError, c.want)
			}
		}
		if n := len(r.Rows("acme")); n != 2 {
			t.Errorf("acme has %d deliveries, want 2", n)
		}
		globex := r.Rows("globex")
		if len(globex) != 1 || !strings.Contains(globex[0].Payload, "9007199254740993") || globex[0].EventID == "" {
			t.Errorf("globex has %+v", globex)
		}
		if n := len(entries(t, r, outbox.Done)); n != 3 {
			t.Errorf("%d rows are done, want 3", n)
		}
	})
}

// A row that makes the database refuse its batch does not keep the other 999: they are captured in the same round. It is
// tried again by the schedule, spends an attempt each time, and is dead_lettered after the last; requeued, it begins anew.
//
// contract: O-04, O-07
func TestAPoisonRow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		const poison = 700
		for i := range 1000 {
			r.Enqueue("acme", paid, events.Payload{"n": i})
		}
		faults.Before(func(op dbtest.Op) error {
			if strings.HasPrefix(strings.TrimSpace(op.SQL), "INSERT INTO event_deliveries") && strings.Contains(strings.ReplaceAll(fmt.Sprint(op.Args), `\`, ""), fmt.Sprintf(`"n":%d,`, poison)) {
				return errors.New("poison")
			}
			return nil
		})
		waits := []time.Duration{5, 10, 20, 40}
		for n, wait := range waits {
			r.Relay()
			if got := len(r.Rows("acme")); got != 999 {
				t.Fatalf("%d deliveries, want 999", got)
			}
			left := entries(t, r, outbox.Pending)
			if len(left) != 1 || left[0].Attempts != n+1 || !left[0].NextAttemptAt.Equal(r.Clock.Now().Add(wait*time.Second).Truncate(time.Microsecond)) {
				t.Fatalf("failure %d: %+v", n+1, left)
			}
			r.Clock.Add(wait*time.Second - time.Millisecond)
			if k := r.Relay(); k != 0 {
				t.Fatalf("failure %d: tried %d rows before their time", n+1, k)
			}
			r.Clock.Add(time.Millisecond)
		}
		r.Relay()
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != 1 || dead[0].Attempts != 5 || !strings.Contains(dead[0].LastError, "poison") {
			t.Fatalf("after five failures: %+v", dead)
		}
		if err := r.Queue.Requeue(t.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := r.Queue.Requeue(t.Context(), dead[0].ID); !errors.Is(err, outbox.ErrNotDeadLettered) {
			t.Errorf("requeued twice: %v", err)
		}
		if err := r.Queue.Requeue(t.Context(), 1<<40); !errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("requeued what is not there: %v", err)
		}
		if left := entries(t, r, outbox.Pending); len(left) != 1 || left[0].Attempts != 0 {
			t.Errorf("requeued: %+v", left)
		}
		faults.Before(func(dbtest.Op) error { return nil })
		r.Relay()
		if got := len(r.Rows("acme")); got != 1000 {
			t.Errorf("%d deliveries in the end, want 1000", got)
		}
	})
}

// When the database is away, no attempt is spent.
//
// contract: O-04
func TestAnOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		r.Enqueue("acme", paid, nil)
		for _, kind := range []string{"begin", "commit", "query"} {
			faults.Before(func(op dbtest.Op) error {
				if op.Kind == kind {
					return database.ErrUnreachable
				}
				return nil
			})
			if n, err := r.Queue.Round(t.Context()); err == nil || n != 0 {
				t.Errorf("%s: %d rows, %v", kind, n, err)
			}
			faults.Before(func(dbtest.Op) error { return nil })
			if left := entries(t, r, outbox.Pending); len(left) != 1 || left[0].Attempts != 0 {
				t.Errorf("%s: %+v", kind, left)
			}
		}
		r.Relay()
		if n := len(r.Rows("acme")); n != 1 {
			t.Errorf("%d deliveries", n)
		}
	})
}

// Rows of many tenants share wake-ups of up to a hundred, with the tenant beside each id, and each is delivered in its own.
//
// contract: J-01, T-01
func TestMixedWakeups(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		seen := make(chan string, 1000)
		r.Registry.RegisterFunc("mailer", paid, func(_ context.Context, e events.Event) error {
			seen <- e.TenantID
			return nil
		})
		for i := range 75 {
			r.Enqueue([]string{"acme", "globex"}[i%2], paid, nil)
			r.Enqueue("acme", paid, nil)
		}
		r.Relay()
		all := r.Wakeups.All()
		if len(all) != 2 || len(all[0].IDs) != 100 || len(all[1].IDs) != 50 || len(all[0].Tenants) != 100 || all[0].Tenant != "" {
			t.Fatalf("wake-ups: %+v", all)
		}
		r.Work()
		got := map[string]int{}
		for range 150 {
			got[<-seen]++
		}
		if got["acme"] != 113 || got["globex"] != 37 {
			t.Errorf("runs by tenant: %v", got)
		}
	})
}

// A row that got its number first and was committed last is not passed over; rows of one transaction keep their order.
//
// scenario: B105, B108
func TestALateCommit(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		if db.Dialect() == database.PostgreSQL { // on SQLite nobody else can write meanwhile
			first, err := db.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := events.New(r.Ctx("acme"), paid, events.Payload{"n": -1}, rig.Limits)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Queue.Enqueue(r.Ctx("acme"), first, e); err != nil {
				t.Fatal(err)
			}
			r.Enqueue("acme", paid, events.Payload{"n": -2})
			if n := r.Relay(); n != 1 {
				t.Fatalf("%d rows before the commit of the first, want 1", n)
			}
			if err := first.Commit(); err != nil {
				t.Fatal(err)
			}
			if n := r.Relay(); n != 1 || len(r.Rows("acme")) != 2 {
				t.Fatalf("%d rows after it, want 1", n)
			}
		}
		before := len(r.Rows("acme"))
		err := db.InTx(r.Ctx("acme"), func(ctx context.Context, tx *sql.Tx) error {
			for i := range 20 {
				e, err := events.New(ctx, paid, events.Payload{"n": i}, rig.Limits)
				if err != nil {
					return err
				}
				if err := r.Queue.Enqueue(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Relay()
		for i, row := range r.Rows("acme")[before:] {
			if want := fmt.Sprintf(`"n":%d,`, i); !strings.Contains(row.Payload, want) {
				t.Errorf("row %d is %s", i, row.Payload)
			}
		}
	})
}
