package sequences_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/outbox"
)

// snapshot is what the database has.
type snapshot struct {
	rows   map[string]durable.EventDelivery // by id
	order  []durable.EventDelivery          // by tenant, then by id
	ledger map[ledger.Key]entry
	queue  []outbox.Entry // by id
}

// entry is a row of the ledger.
type entry struct {
	status         ledger.Status
	started, lease int64
}

// looks are the queries of a snapshot. They are made after every step, and SQLite takes longer to parse one than to run it.
type looks struct{ rows, ledger, queue look }

type look func(ctx context.Context) (*sql.Rows, error)

func newLooks(t testing.TB, db *database.DB) looks {
	t.Helper()
	one := func(query string) look {
		if db.Dialect() == database.PostgreSQL { // prepared by pgx anyway
			return func(ctx context.Context) (*sql.Rows, error) { return db.Read().QueryContext(ctx, query) }
		}
		s, err := db.Read().PrepareContext(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return func(ctx context.Context) (*sql.Rows, error) { return s.QueryContext(ctx) }
	}
	return looks{
		one(`SELECT id, tenant_id, event_id, subscriber_key, status, attempts, runs, unfinished, coalesce(last_error, ''), errors,
			next_attempt_at, delivered_at, created_at FROM event_deliveries ORDER BY tenant_id, id`),
		one(`SELECT tenant_id, event_id, handler, status, started_at, lease_until FROM processed_events`),
		one(`SELECT id, event_id, tenant_id, event_type, status, attempts, deferrals, coalesce(last_error, ''), claimed_at, next_attempt_at,
			created_at, coalesce(origin, '') FROM event_queue ORDER BY id`),
	}
}

func (w *world) snapshot() snapshot {
	s := snapshot{rows: map[string]durable.EventDelivery{}, ledger: map[ledger.Key]entry{}}
	w.query(w.stage.looks.rows, func(rows *sql.Rows) error {
		var r durable.EventDelivery
		err := rows.Scan(&r.ID, &r.TenantID, &r.EventID, &r.SubscriberKey, &r.Status, &r.Attempts, &r.Runs, &r.Unfinished, &r.LastError,
			&r.Errors, &r.NextAttemptAt, &r.DeliveredAt, &r.CreatedAt)
		s.order = append(s.order, r)
		s.rows[r.ID] = r
		return err
	})
	w.query(w.stage.looks.ledger, func(rows *sql.Rows) error {
		var k ledger.Key
		var e entry
		err := rows.Scan(&k.Tenant, &k.EventID, &k.Handler, &e.status, &e.started, &e.lease)
		s.ledger[k] = e
		return err
	})
	w.query(w.stage.looks.queue, func(rows *sql.Rows) error {
		var e outbox.Entry
		err := rows.Scan(&e.ID, &e.EventID, &e.TenantID, &e.EventType, &e.Status, &e.Attempts, &e.Deferrals, &e.LastError, &e.ClaimedAt,
			&e.NextAttemptAt, &e.CreatedAt, &e.Origin)
		s.queue = append(s.queue, e)
		return err
	})
	return s
}

func (w *world) query(q look, scan func(*sql.Rows) error) {
	rows, err := q(w.tb.ctx)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		w.must(scan(rows))
	}
	w.must(rows.Err())
}
