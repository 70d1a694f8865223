package rig

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// Wakeups is an Enqueuer over a table of the same database, so that a wake-up is there if its transaction was committed.
type Wakeups struct {
	t  testing.TB
	db *database.DB
	// Fail, if set, can refuse a wake-up.
	Fail func(durable.Wakeup) error
}

func newWakeups(t testing.TB, db *database.DB) *Wakeups {
	t.Helper()
	id := "INTEGER PRIMARY KEY"
	if db.Dialect() == database.PostgreSQL {
		id = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	}
	Exec(t, db, `CREATE TABLE test_wakeups (id `+id+`, tenant TEXT, ids TEXT, tenants TEXT, queue TEXT, at BIGINT)`)
	return &Wakeups{t: t, db: db}
}

// Enqueue implements durable.Enqueuer.
func (w *Wakeups) Enqueue(ctx context.Context, tx *sql.Tx, wakeups []durable.Wakeup) error {
	for _, u := range wakeups {
		if w.Fail != nil {
			if err := w.Fail(u); err != nil {
				return err
			}
		}
		at := int64(0)
		if !u.At.IsZero() {
			at = u.At.UnixNano()
		}
		ids, err := json.Marshal(u.IDs)
		if err != nil {
			return err
		}
		tenants, err := json.Marshal(u.Tenants)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO test_wakeups (tenant, ids, tenants, queue, at) VALUES ($1, $2, $3, $4, $5)`,
			u.Tenant, string(ids), string(tenants), u.Queue, at); err != nil {
			return err
		}
	}
	return nil
}

// Next takes the oldest wake-up that is due.
func (w *Wakeups) Next(now time.Time) (durable.Wakeup, bool) {
	w.t.Helper()
	var u durable.Wakeup
	var ids, tenants string
	var at int64
	err := w.db.InTx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `DELETE FROM test_wakeups WHERE id =
			(SELECT id FROM test_wakeups WHERE at <= $1 ORDER BY at, id LIMIT 1) RETURNING tenant, ids, tenants, queue, at`, now.UnixNano()).
			Scan(&u.Tenant, &ids, &tenants, &u.Queue, &at)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return u, false
	}
	if err == nil {
		err = errors.Join(json.Unmarshal([]byte(ids), &u.IDs), json.Unmarshal([]byte(tenants), &u.Tenants))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if at != 0 {
		u.At = time.Unix(0, at).UTC()
	}
	return u, true
}

// All returns the wake-ups that wait, in the order in which they were inserted.
func (w *Wakeups) All() []durable.Wakeup {
	w.t.Helper()
	rows, err := w.db.Read().QueryContext(context.Background(), `SELECT tenant, ids, tenants, queue, at FROM test_wakeups ORDER BY id`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var out []durable.Wakeup
	for rows.Next() {
		var u durable.Wakeup
		var ids, tenants string
		var at int64
		err := rows.Scan(&u.Tenant, &ids, &tenants, &u.Queue, &at)
		if err := errors.Join(err, json.Unmarshal([]byte(ids), &u.IDs), json.Unmarshal([]byte(tenants), &u.Tenants)); err != nil {
			w.t.Fatal(err)
		}
		if at != 0 {
			u.At = time.Unix(0, at).UTC()
		}
		out = append(out, u)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// Clear loses all wake-ups.
func (w *Wakeups) Clear() {
	w.t.Helper()
	Exec(w.t, w.db, `DELETE FROM test_wakeups`)
}
