package durable

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// newRow is a row to be written.
type newRow struct {
	event  *events.Event
	target target
}

func newRows(e events.Event, targets []target) []newRow {
	out := make([]newRow, len(targets))
	for i, t := range targets {
		out[i] = newRow{&e, t}
	}
	return out
}

const (
	// insertBatch is how many rows one statement writes at most, and insertBytes how many bytes of payloads, so that none
	// holds a lock for long or needs much memory.
	insertBatch = 500
	insertBytes = 4 << 20
)

// insert writes rows and returns those that were not there yet, in the same order.
func (d *Deliveries) insert(ctx context.Context, tx *sql.Tx, rows []newRow) ([]Ref, error) {
	var out []Ref
	for len(rows) > 0 {
		n, bytes := 0, 0
		for n < min(len(rows), insertBatch) && bytes < insertBytes {
			bytes += len(rows[n].event.JSON())
			n++
		}
		refs, err := d.insertSome(ctx, tx, rows[:n])
		if err != nil {
			return nil, err
		}
		out, rows = append(out, refs...), rows[n:]
	}
	return out, nil
}

// insertSome is one statement, whose columns are parameters: its text is always the same.
func (d *Deliveries) insertSome(ctx context.Context, tx *sql.Tx, rows []newRow) ([]Ref, error) {
	values := make([][]string, 8)
	for _, r := range rows {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make a delivery id: %w", err)
		}
		e := r.event
		for c, v := range [...]string{id.String(), e.TenantID, e.ID, r.target.key, e.Name, r.target.queue, string(e.JSON()), e.Headers.JSON()} {
			values[c] = append(values[c], v)
		}
	}
	payload, kind := "j.c6", d.DB.Dialect().TimeType()
	if d.DB.Dialect() == database.PostgreSQL {
		payload = "CAST(j.c6 AS json)"
	}
	table, args := d.DB.Dialect().Rows(2, values...)
	found, err := tx.QueryContext(ctx, `INSERT INTO event_deliveries
		(id, tenant_id, event_id, subscriber_key, event_name, queue, payload, headers, status, created_at, updated_at)
		SELECT j.c0, j.c1, j.c2, j.c3, j.c4, j.c5, `+payload+`, j.c7, 'pending', CAST($1 AS `+kind+`), CAST($1 AS `+kind+`)
		  FROM `+table+` WHERE true
		ON CONFLICT (tenant_id, event_id, subscriber_key) DO NOTHING RETURNING id`, append([]any{database.At(d.Now())}, args...)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	written := make(map[string]bool, len(rows))
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		written[id] = true
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	out := make([]Ref, 0, len(written))
	for i, r := range rows {
		if id := values[0][i]; written[id] {
			out = append(out, Ref{ID: id, Key: r.target.key, Tenant: r.event.TenantID})
		}
	}
	return out, nil
}
