package jobs_test

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
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/jobs"
	"github.com/openloam/loam/tenant"
)

// deliverer notes what it is asked to deliver, and answers with the errors it is given, then with nil.
type deliverer struct {
	mu      sync.Mutex
	calls   []string
	answers []error
}

func (d *deliverer) Deliver(ctx context.Context, ids ...string) error {
	return d.note(ctx, "together", ids)
}

func (d *deliverer) DeliverAlone(ctx context.Context, id string) error {
	return d.note(ctx, "alone", []string{id})
}

func (d *deliverer) note(ctx context.Context, how string, ids []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, tenant.From(ctx)+" "+how+" "+strings.Join(ids, ","))
	if len(d.answers) == 0 {
		return nil
	}
	err := d.answers[0]
	d.answers = d.answers[1:]
	return err
}

func (d *deliverer) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.calls...)
}

func enqueue(t *testing.T, db *database.DB, j *jobs.Jobs, wakeups ...durable.Wakeup) {
	t.Helper()
	err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return j.Enqueue(ctx, tx, wakeups) })
	if err != nil {
		t.Fatal(err)
	}
}

// What is stored for a wake-up is the tenant and the ids and nothing else, under a kind that never changes.
//
// contract: J-01
func TestWhatAJobCarries(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, _ := newJobs(t, db)
		at := time.Date(2030, 3, 1, 12, 0, 0, 7*int(time.Millisecond), time.UTC)
		enqueue(t, db, j, durable.Wakeup{Tenant: "acme", IDs: []string{"d1", "d2"}, Queue: "slow", At: at})
		var kind, queue, state string
		var args bool
		var scheduled database.Time
		rig.Scan(t, db, `SELECT kind, `+same(db, "args", 1)+`, queue, state, scheduled_at FROM river_job`,
			[]any{`{"tenant_id":"acme","delivery_ids":["d1","d2"]}`}, &kind, &args, &queue, &state, &scheduled)
		if kind != "loam_event_delivery" || !args || queue != "slow" {
			t.Errorf("the job is %s in %s; its arguments as wanted: %v", kind, queue, args)
		}
		if state != "scheduled" || !scheduled.Equal(at) {
			t.Errorf("the job is %s for %s", state, scheduled)
		}
	})
}

// A wake-up is there if and only if its transaction commits, and none at all is inserted for nothing.
//
// contract: D-04
func TestEnqueueJoinsTheTransaction(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, _ := newJobs(t, db)
		boom := errors.New("boom")
		err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(j.Enqueue(ctx, tx, []durable.Wakeup{{Tenant: "acme", IDs: []string{"d1"}, Queue: "loam"}}), boom)
		})
		if !errors.Is(err, boom) || count(t, db, "true") != 0 {
			t.Errorf("err %v, %d jobs after a rollback", err, count(t, db, "true"))
		}
		enqueue(t, db, j)
		if n := count(t, db, "true"); n != 0 {
			t.Errorf("%d jobs for no wake-up", n)
		}
	})
}

// A job reaches the deliveries in its tenant, with its ids. A suspect's, in the suspects' queue, is delivered alone.
//
// contract: J-01, D-20
func TestAJobIsDelivered(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for name, c := range map[string]struct {
			wakeup durable.Wakeup
			want   string
		}{
			"of the default queue":  {durable.Wakeup{Tenant: "acme", IDs: []string{"d1", "d2"}, Queue: durable.DefaultQueue}, "acme together d1,d2"},
			"of a queue of its own": {durable.Wakeup{Tenant: "globex", IDs: []string{"d3"}, Queue: "slow"}, "globex together d3"},
			"of a suspect":          {durable.Wakeup{Tenant: "acme", IDs: []string{"d4"}, Queue: durable.SuspectQueue}, "acme alone d4"},
		} {
			j, _ := newJobs(t, db)
			d := &deliverer{}
			start(t, j, jobs.Work{Deliveries: d, Queues: []string{"slow"}})
			enqueue(t, db, j, c.wakeup)
			until(t, "delivered "+name, func() bool { return len(d.seen()) > 0 })
			stop(t, j)
			if got := d.seen(); len(got) != 1 || got[0] != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
		if n := count(t, db, `kind = 'loam_event_delivery' AND (state <> 'completed' OR attempt <> 1)`); n > 0 {
			t.Errorf("%d jobs are not completed, at the first attempt", n)
		}
	})
}

// A job without a tenant or without ids, and one with fields that this build does not know, is completed; what it lacks is
// asked of nobody.
//
// contract: J-02
func TestAJobThatNamesNothing(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for _, args := range []string{
			`{}`, `{"tenant_id":"acme"}`, `{"tenant_id":"acme","delivery_ids":[]}`, `{"delivery_ids":["d1"]}`,
			`{"tenant_id":"acme","delivery_ids":["known"],"later":{"more":1}}`,
			`{"tenant_id":"","delivery_ids":["d1","d2"],"tenant_ids":["acme"]}`,
			`{"tenant_id":"","delivery_ids":["d3","d4","d5"],"tenant_ids":["acme","globex","acme"]}`,
		} {
			rig.Exec(t, db, `INSERT INTO river_job (args, kind, max_attempts, queue) VALUES (`+binary(db, 1)+`, 'loam_event_delivery', 25, 'loam')`, args)
		}
		j, _ := newJobs(t, db)
		d := &deliverer{}
		start(t, j, jobs.Work{Deliveries: d})
		until(t, "all completed", func() bool { return count(t, db, `kind = 'loam_event_delivery' AND state = 'completed'`) == 7 })
		if n := count(t, db, `errors IS NOT NULL`); n > 0 {
			t.Errorf("%d jobs have errors", n)
		}
		got := d.seen()
		slices.Sort(got)
		if want := []string{"acme together d3,d5", "acme together known", "globex together d4"}; !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q", got, want)
		}
	})
}

// River's own retries are for a database that fails: a second later, then two, and never more than a minute. A process that
// stops puts the job back without an attempt of River's.
//
// contract: J-01
func TestWhenDeliverFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		away := errors.New("the database is away")
		for errorsBefore, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 6: time.Minute, 20: time.Minute} {
			rig.Exec(t, db, `DELETE FROM river_job`)
			const one = `{"at":"2026-01-01T00:00:00Z","attempt":1,"error":"x","trace":""}`
			history, errorsOf, length := "["+strings.TrimSuffix(strings.Repeat(one+",", errorsBefore), ",")+"]", "jsonb($3)", "json_array_length(errors)"
			if db.Dialect() == database.PostgreSQL {
				history, errorsOf, length = one, "array_fill(CAST($3 AS jsonb), ARRAY[CAST($1 AS int)])", "cardinality(errors)"
			}
			rig.Exec(t, db, `INSERT INTO river_job (attempt, args, errors, kind, max_attempts, queue)
				VALUES (CAST($1 AS int), `+binary(db, 2)+`, `+errorsOf+`, 'loam_event_delivery', 25, 'loam')`,
				errorsBefore, `{"tenant_id":"acme","delivery_ids":["d1"]}`, history)
			j, _ := newJobs(t, db)
			d := &deliverer{answers: []error{away}}
			before := time.Now()
			start(t, j, jobs.Work{Deliveries: d})
			failed := `kind = 'loam_event_delivery' AND ` + length + ` = $1`
			until(t, "failed", func() bool { return count(t, db, failed, errorsBefore+1) == 1 })
			after := time.Now()
			stop(t, j)
			var at database.Time
			rig.Scan(t, db, `SELECT scheduled_at FROM river_job WHERE kind = 'loam_event_delivery'`, nil, &at)
			if at.Before(before.Add(want-10*time.Millisecond)) || at.After(after.Add(want+10*time.Millisecond)) {
				t.Errorf("after error %d: retried %v after %v, want %v", errorsBefore+1, at.Sub(before), before, want)
			}
		}
		rig.Exec(t, db, `DELETE FROM river_job`)
		j, _ := newJobs(t, db)
		d := &deliverer{answers: []error{fmt.Errorf("wrapped: %w", durable.ErrStopping)}}
		start(t, j, jobs.Work{Deliveries: d})
		enqueue(t, db, j, durable.Wakeup{Tenant: "acme", IDs: []string{"d1"}, Queue: durable.DefaultQueue})
		until(t, "put back and worked", func() bool { return len(d.seen()) == 2 })
		until(t, "completed", func() bool {
			return count(t, db, `kind = 'loam_event_delivery' AND state = 'completed' AND errors IS NULL`) == 1
		})
	})
}
