package loam_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
)

// succeed is a handler.
func succeed(context.Context, events.Event) error { return nil }

// wakeJob is one of River's jobs.
type wakeJob struct {
	queue string
	args  map[string]any
}

func (j wakeJob) ids() (ids []string) {
	all, _ := j.args["delivery_ids"].([]any)
	for _, id := range all {
		ids = append(ids, fmt.Sprint(id))
	}
	return ids
}

// argsText is a job's arguments, as JSON text.
func argsText(db *database.DB) string {
	if db.Dialect() == database.PostgreSQL {
		return "args"
	}
	return "json(args)"
}

// wakeJobs reads all wake-ups, or those in some states, in the order in which they were inserted.
func wakeJobs(t *testing.T, db *database.DB, states ...string) (jobs []wakeJob) {
	t.Helper()
	rows, err := db.Read().QueryContext(t.Context(), `SELECT queue, state, `+argsText(db)+` FROM river_job WHERE kind = 'loam_event_delivery' ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var j wakeJob
		var state, args string
		if err := rows.Scan(&j.queue, &state, &args); err != nil {
			t.Fatal(err)
		}
		if len(states) > 0 && !slices.Contains(states, state) {
			continue
		}
		if err := json.Unmarshal([]byte(args), &j.args); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return jobs
}

// deliveries reads all rows of a tenant, in the order of capture.
func deliveries(ctx context.Context, t *testing.T, engine *loam.Engine) []durable.EventDelivery {
	t.Helper()
	rows, err := engine.Deliveries(ctx, durable.Query{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// stored fails the test unless so many rows and wake-up jobs are there.
func stored(t *testing.T, db *database.DB, when string, rows, jobs int) {
	t.Helper()
	if r, j := count(t, db, "true"), len(wakeJobs(t, db)); r != rows || j != jobs {
		t.Errorf("%s: %d rows and %d jobs, want %d and %d", when, r, j, rows, jobs)
	}
}

// contract: D-04, J-01. One row for each subscriber that matches, in the order of registration, and one job for up to 100
// rows of one queue, which carries ids and nothing else.
func TestCaptureWritesRowsAndJobs(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		var want []string
		queues := map[string]string{}
		for i := range 253 {
			key, queue := fmt.Sprintf("sub.%d", (i*7)%253), "loam" // not in the order of the keys
			opts := []durable.Option{}
			if i%100 == 50 {
				queue, opts = "slow", append(opts, durable.WithQueue("slow"))
			}
			reg.RegisterFunc(key, "shop.order.", succeed, opts...)
			want, queues[key] = append(want, key), queue
		}
		reg.RegisterFunc("other", "billing.", succeed)
		engine := newEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), "shop.order.paid", events.Payload{"order_id": 7}); err != nil {
			t.Fatal(err)
		}

		rows := deliveries(inTenant(t), t, engine)
		var keys []string
		queueOf := map[string]string{}
		for _, r := range rows {
			keys, queueOf[r.ID] = append(keys, r.SubscriberKey), r.Queue
			if r.TenantID != "acme" || r.EventID != rows[0].EventID || r.EventName != "shop.order.paid" || r.Status != durable.Pending ||
				r.Attempts != 0 || r.Runs != 0 || r.Payload != `{"actor_id":null,"order_id":7,"tenant_id":"acme"}` || r.Queue != queues[r.SubscriberKey] {
				t.Fatalf("the row is %+v", r)
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("the rows are for %q,\nwant %q", keys, want)
		}

		sizes := map[string][]int{}
		for _, j := range wakeJobs(t, db) {
			sizes[j.queue] = append(sizes[j.queue], len(j.ids()))
			if names := slices.Sorted(maps.Keys(j.args)); !slices.Equal(names, []string{"delivery_ids", "tenant_id"}) || j.args["tenant_id"] != "acme" {
				t.Errorf("a job carries %v", j.args)
			}
			for _, id := range j.ids() {
				if queueOf[id] != j.queue {
					t.Errorf("a job in %s wakes %s, whose row says %q (or woken twice)", j.queue, id, queueOf[id])
				}
				delete(queueOf, id)
			}
		}
		if len(queueOf) != 0 {
			t.Errorf("%d rows are not woken", len(queueOf))
		}
		if !slices.Equal(sizes["loam"], []int{100, 100, 50}) || !slices.Equal(sizes["slow"], []int{3}) || len(sizes) != 2 {
			t.Errorf("the jobs have so many rows: %v", sizes)
		}
	})
}

// contract: E-02, E-03, D-04. A pattern gets what it matches, and no other pattern keeps it from that; two keys with one function
// are two subscribers; without a match nothing is written. The empty pattern is refused.
// scenario: B023, B024, B025
func TestWhoGetsAnEvent(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		for _, s := range [][2]string{
			{"exact", "shop.order.paid"},
			{"prefix", "shop.order."},
			{"all", "shop."},
			{"user", "user."},
			{"audit.all", "shop.order."},
			{"audit.paid", "shop.order.paid"},
		} {
			reg.RegisterFunc(s[0], s[1], succeed)
		}
		if text := panics(t, "the empty pattern", func() { reg.RegisterFunc("every", "", succeed) }); !strings.Contains(text, `"every"`) {
			t.Errorf("the panic does not name the key: %s", text)
		}
		engine := newEngine(t, db, reg)
		want := map[string][]string{
			"shop.order.paid":      {"exact", "prefix", "all", "audit.all", "audit.paid"},
			"shop.order.made":      {"prefix", "all", "audit.all"},
			"shop.order.paid.late": {"prefix", "all", "audit.all"},
			"shop.orders.paid":     {"all"},
			"shopx.order.paid":     nil,
			"user.account.made":    {"user"},
			"users.account.made":   nil,
			"xuser.account.made":   nil,
			"order.user.made":      nil,
		}
		for name := range want {
			if err := engine.Publish(inTenant(t), name, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string][]string{}
		for _, r := range deliveries(inTenant(t), t, engine) {
			got[r.EventName] = append(got[r.EventName], r.SubscriberKey)
		}
		for name, keys := range want {
			if !slices.Equal(got[name], keys) {
				t.Errorf("%s reached %q, want %q", name, got[name], keys)
			}
		}
		if n := len(wakeJobs(t, db)); n != 5 {
			t.Errorf("%d jobs for 5 events that somebody wants", n)
		}
	})
}

// contract: D-02. Wiring that runs a second time is told so, with both places, and changes nothing; on a registry of its own
// each time it is one row for a subscriber, as at first.
// scenario: B020
func TestWiringThatRunsAgain(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		wire := func(reg *durable.Registry) *loam.Engine {
			reg.RegisterFunc("mailer", "shop.order.paid", succeed)
			return newEngine(t, db, reg)
		}
		reg := durable.NewRegistry()
		engine := wire(reg)
		for range 2 {
			text := panics(t, "wiring again", func() { wire(reg) })
			if !strings.Contains(text, `"mailer"`) || strings.Count(text, "publish_test.go:") != 2 {
				t.Errorf("the panic does not name the key and both places: %s", text)
			}
		}
		for range 2 {
			engine = wire(durable.NewRegistry())
		}
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		stored(t, db, "after one publish", 1, 1)
	})
}

// contract: E-01, D-02. What is too long is refused where it is written down, not by an index.
// scenario: B154, B156
func TestTooLongForARow(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		long := "shop.order." + strings.Repeat("x", 3000)
		for what, f := range map[string]func(){
			"a pattern": func() { reg.RegisterFunc("mailer", long, succeed) },
			"a key":     func() { reg.RegisterFunc(long, "shop.", succeed) },
		} {
			if text := panics(t, what, f); !strings.Contains(text, "at most 200") {
				t.Errorf("%s: the panic does not name the limit: %s", what, text)
			}
		}
		key, name := strings.Repeat("k", 200), "shop.order."+strings.Repeat("x", 189)
		reg.RegisterFunc(key, name, succeed) // both of 200 bytes
		engine := newEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), name, nil); err != nil {
			t.Error(err)
		}
		if rows := deliveries(inTenant(t), t, engine); len(rows) != 1 || rows[0].SubscriberKey != key || rows[0].EventName != name {
			t.Errorf("the rows are %+v", rows)
		}
	})
}

// contract: D-03. Registering while events are published is no race; after the seal every try panics.
// scenario: B028
func TestRegisterWhilePublishing(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		engine := newEngine(t, db, reg)
		const n, wanting = 50, 2
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range n {
			pattern := "other." // few rows, so that fifty publishers need not wait long for each other
			if i < wanting {
				pattern = "shop."
			}
			all.Go(func() {
				<-start
				reg.RegisterFunc(fmt.Sprintf("sub.%d", i), pattern, succeed)
			})
			all.Go(func() {
				<-start
				if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		before := count(t, db, "true")
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil || count(t, db, "true") != before+wanting {
			t.Errorf("afterwards %d subscribers got the event (%v), want %d", count(t, db, "true")-before, err, wanting)
		}
		reg.Seal()
		for i := range 3 {
			panics(t, "after the seal", func() { reg.RegisterFunc(fmt.Sprintf("late.%d", i), "shop.", succeed) })
		}
		if len(reg.Registered()) != n {
			t.Errorf("%d are registered", len(reg.Registered()))
		}
	})
}
