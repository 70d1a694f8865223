package sequences_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/ledger"
)

// snapshot is what the database has.
type snapshot struct {
	rows   map[string]durable.EventDelivery // by id
	order  []durable.EventDelivery          // by tenant, then by id
	ledger map[ledger.Key]entry
}

// entry is a row of the ledger.
type entry struct {
	status         ledger.Status
	started, lease int64
}

// looks are the queries of a snapshot, prepared: they are made after every step, and SQLite takes longer to parse one than
// to run it.
type looks struct{ rows, ledger *sql.Stmt }

func prepare(t testing.TB, db *database.DB) looks {
	t.Helper()
	one := func(query string) *sql.Stmt {
		s, err := db.Read().PrepareContext(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	return looks{
		one(`SELECT id, tenant_id, event_id, subscriber_key, status, attempts, runs, unfinished, coalesce(last_error, ''), errors,
			next_attempt_at, delivered_at, created_at FROM event_deliveries ORDER BY tenant_id, id`),
		one(`SELECT tenant_id, event_id, handler, status, started_at, lease_until FROM processed_events`),
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
	return s
}

func (w *world) query(q *sql.Stmt, scan func(*sql.Rows) error) {
	rows, err := q.QueryContext(w.tb.ctx)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		w.must(scan(rows))
	}
	w.must(rows.Err())
}
