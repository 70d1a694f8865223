package durable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/openloam/loam/events"
)

// eventID names an event: ids are a tenant's own.
type eventID struct{ tenant, id string }

func idOf(e events.Event) eventID { return eventID{e.TenantID, e.ID} }

// presence is a row that an event has already.
type presence struct{ name, payload, key string }

// present returns the rows that events have already.
func (d *Deliveries) present(ctx context.Context, tx *sql.Tx, evs []events.Event) (map[eventID][]presence, error) {
	tenants, ids := make([]string, len(evs)), make([]string, len(evs))
	for i, e := range evs {
		tenants[i], ids[i] = e.TenantID, e.ID
	}
	table, args := d.DB.Dialect().Rows(1, tenants, ids)
	rows, err := tx.QueryContext(ctx, `SELECT d.tenant_id, d.event_id, d.event_name, coalesce(d.original_payload, d.payload), d.subscriber_key
		FROM `+table+` CROSS JOIN event_deliveries AS d WHERE d.tenant_id = j.c0 AND d.event_id = j.c1`, args...)
	if err != nil {
		return nil, fmt.Errorf("look for deliveries of the same events: %w", err)
	}
	defer rows.Close()
	out := map[eventID][]presence{}
	for rows.Next() {
		var id eventID
		var p presence
		if err := rows.Scan(&id.tenant, &id.id, &p.name, &p.payload, &p.key); err != nil {
			return nil, err
		}
		out[id] = append(out[id], p)
	}
	return out, rows.Err()
}

// missing returns the targets that have no row for e yet, under their key or an alias. It refuses an id that the tenant
// has for another event.
func missing(e events.Event, targets []target, there []presence) ([]target, error) {
	if len(there) == 0 {
		return targets, nil
	}
	have := map[string]bool{}
	for _, p := range there {
		if err := e.SameAs(p.name, p.payload); err != nil {
			return nil, err
		}
		have[p.key] = true
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return have[t.key] || slices.ContainsFunc(t.same, func(key string) bool { return have[key] })
	}), nil
}
