package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/tenant"
)

// queued counts the rows of event_queue.
func queued(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	rig.Scan(t, db, `SELECT count(*) FROM event_queue`, nil, &n)
	return n
}

// In the outbox mode Publish writes one row, and none without a tenant, or for one that is not known; a repeated id adds nothing,
// and with another payload it is refused. PublishTx is the caller's transaction. Inline subscribers are called as ever.
//
// contract: O-01, O-05, E-15, T-02
func TestPublishToTheQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg, func(c *loam.Config) { c.Capture = loam.Outbox })
		inline := 0
		engine.Subscribe("shop.", func(context.Context, events.Event) error {
			inline++
			return nil
		})
		acme := tenant.With(t.Context(), "acme")
		const id = "00000000-0000-7000-8000-000000000001"
		undone := errors.New("undone")
		inTx := func(end error) error {
			return engine.InTx(acme, func(ctx context.Context, tx *sql.Tx) error {
				if err := engine.Publish(ctx, "shop.order.paid", nil); !errors.Is(err, events.ErrInTransaction) {
					t.Errorf("Publish in a transaction: %v", err)
				}
				return errors.Join(engine.PublishTx(ctx, tx, "shop.order.paid", nil), end)
			})
		}
		for _, c := range []struct {
			name string
			do   func() error
			want error
			rows int
		}{
			{"plain", func() error { return engine.Publish(acme, "shop.order.paid", events.Payload{"n": 1}) }, nil, 1},
			{"no tenant", func() error { return engine.Publish(t.Context(), "shop.order.paid", nil) }, nil, 1},
			{"unknown tenant", func() error { return engine.Publish(tenant.With(t.Context(), "nobody"), "shop.order.paid", nil) }, nil, 1},
			{"an id", func() error { return engine.Publish(acme, "shop.order.paid", nil, events.WithID(id)) }, nil, 2},
			{"again", func() error { return engine.Publish(acme, "shop.order.paid", nil, events.WithID(id)) }, nil, 2},
			{"reused", func() error {
				return engine.Publish(acme, "shop.order.paid", events.Payload{"n": 2}, events.WithID(id))
			}, events.ErrIDReused, 2},
			{"rolled back", func() error { return inTx(undone) }, undone, 2},
			{"committed", func() error { return inTx(nil) }, nil, 3},
			{"bad", func() error { return engine.Publish(acme, "shop", nil) }, events.ErrInvalidName, 3},
		} {
			if err := c.do(); !errors.Is(err, c.want) || queued(t, db) != c.rows {
				t.Errorf("%s: %v, want %v; %d rows, want %d", c.name, err, c.want, queued(t, db), c.rows)
			}
		}
		if rows := deliveries(acme, t, engine); len(rows) != 0 || inline != 7 {
			t.Errorf("%d deliveries before a relay came, %d inline calls; want 0 and 7", len(rows), inline)
		}
	})
}

// A connection that breaks, or an answer that is lost, is no matter for Publish: it tries again with the same id, and the event is
// there once.
//
// contract: O-01
func TestPublishToTheQueueWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		engine := newEngine(t, db, durable.NewRegistry(), func(c *loam.Config) { c.Capture = loam.Outbox })
		acme := tenant.With(t.Context(), "acme")
		for n, times := range []int{1, 3, 4} {
			for _, after := range []bool{false, true} {
				left := times
				hook := func(op dbtest.Op) error {
					if strings.Contains(op.SQL, "INSERT INTO event_queue") && left > 0 {
						left--
						return database.ErrUnreachable
					}
					return nil
				}
				before := queued(t, db)
				if after {
					faults.After(hook)
				} else {
					faults.Before(hook)
				}
				err := engine.Publish(acme, "shop.order.paid", nil)
				faults.Before(nil)
				faults.After(nil)
				want := 1
				if n == 2 && !after {
					want = 0 // the last try failed, too
				}
				if (err != nil) != (n == 2) || queued(t, db) != before+want {
					t.Errorf("broken %d times, after %v: %v, %d rows more, want %d", times, after, err, queued(t, db)-before, want)
				}
			}
		}
	})
}

// A tenant that is added in the middle of a publish is there: the event is not dropped for want of it.
//
// contract: O-01, T-02
func TestPublishWhileItsTenantIsAdded(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		engine := newEngine(t, db, durable.NewRegistry(), func(c *loam.Config) { c.Capture = loam.Outbox })
		again, _ := dbtest.Again(t, db)
		added := false
		faults.After(func(op dbtest.Op) error {
			if strings.Contains(op.SQL, "INSERT INTO event_queue") && !added {
				added = true
				rig.Exec(t, again, `INSERT INTO loam_tenants (id, created_at) VALUES ('late', $1)`, database.At(time.Now()))
			}
			return nil
		})
		if err := engine.Publish(tenant.With(t.Context(), "late"), "shop.order.paid", nil); err != nil || !added || queued(t, db) != 1 {
			t.Errorf("%v, %d rows, want 1", err, queued(t, db))
		}
	})
}

// An operator sees what is dead_lettered, and gives it all its attempts again.
//
// contract: O-04
func TestDeadLettersOfTheQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		engine := startEngine(t, db, durable.NewRegistry())
		rig.Exec(t, db, `INSERT INTO event_queue (event_type, payload) VALUES ('shop.order.paid', '{bad')`)
		var dead []outbox.Entry
		until(t, time.Minute, "dead_lettered", func() bool {
			var err error
			if dead, err = engine.OutboxEntries(t.Context(), outbox.Query{}); err != nil {
				t.Fatal(err)
			}
			return len(dead) == 1
		})
		report := engine.Health(t.Context())
		if report.QueueDeadLettered != 1 || !strings.Contains(strings.Join(report.Problems, " "), "1 rows of event_queue are dead_lettered") {
			t.Errorf("health: %+v", report)
		}
		rig.Exec(t, db, `UPDATE event_queue SET payload = '{"tenant_id":"acme"}'`)
		if err := engine.Requeue(t.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		until(t, time.Minute, "done", func() bool {
			done, err := engine.OutboxEntries(t.Context(), outbox.Query{Status: outbox.Done})
			return err == nil && len(done) == 1
		})
		if err := engine.Requeue(t.Context(), dead[0].ID); !errors.Is(err, outbox.ErrNotDeadLettered) {
			t.Errorf("requeue what is done: %v", err)
		}
		if _, err := engine.OutboxEntries(t.Context(), outbox.Query{Status: "lost"}); err == nil || !strings.Contains(err.Error(), "dead_lettered") {
			t.Errorf("a status that is none: %v", err)
		}
	})
}
