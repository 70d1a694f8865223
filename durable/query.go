package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// ErrNotFound is returned for a delivery that the tenant in the context does not have.
var ErrNotFound = errors.New("loam: no such delivery in this tenant")

// Query chooses deliveries.
type Query struct {
	// Status is the state to list; empty is all.
	Status Status
	// After is the id of the last delivery of the page before.
	After string
	// Limit is the size of a page. Defaults to 200.
	Limit int
}

// List returns a page of the deliveries of the tenant in ctx, ordered by id: within one process the order of capture. It
// sees what is committed; a row of another process may appear before the cursor later.
func (d *Deliveries) List(ctx context.Context, q Query) ([]EventDelivery, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = 200
	}
	var out []EventDelivery
	sel := d.DB.Mapper().NewSelect().Model(&out).ColumnExpr(columns).
		Where("tenant_id = ?", t).Where("id > ?", q.After).Order("id").Limit(int64(q.Limit))
	if q.Status != "" {
		sel = sel.Where("status = ?", q.Status)
	}
	if err := sel.Scan(ctx); err != nil {
		return nil, fmt.Errorf("list deliveries: %w", database.Explain(err))
	}
	return out, nil
}

// Get returns one delivery of the tenant in ctx, or ErrNotFound.
func (d *Deliveries) Get(ctx context.Context, id string) (EventDelivery, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return EventDelivery{}, err
	}
	var row EventDelivery
	err = d.DB.Mapper().NewSelect().Model(&row).ColumnExpr(columns).Where("tenant_id = ?", t).Where("id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return EventDelivery{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return EventDelivery{}, fmt.Errorf("read delivery: %w", database.Explain(err))
	}
	return row, nil
}
