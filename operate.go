package loam

import (
	"context"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// DeliveryPage returns a page of the dead or of the pending deliveries of the tenant in ctx, as package admin shows it.
func (e *Engine) DeliveryPage(ctx context.Context, q durable.PageQuery) (durable.Page, error) {
	return e.deliveries.Page(ctx, q)
}

// DeliveryCounts counts the deliveries of the tenant in ctx, up to durable.CountLimit + 1 of each state.
func (e *Engine) DeliveryCounts(ctx context.Context) (durable.Counts, error) {
	return e.deliveries.Counts(ctx)
}

// InspectDelivery returns one delivery of the tenant in ctx with what happens to it next, or durable.ErrNotFound.
func (e *Engine) InspectDelivery(ctx context.Context, id string) (durable.Inspection, error) {
	return e.deliveries.Inspect(ctx, id)
}

// RedeliverSeen is Redeliver for a delivery whose UpdatedAt was seen to be seen: durable.ErrChanged if it is dead and has
// changed since.
func (e *Engine) RedeliverSeen(ctx context.Context, id string, seen database.Time) error {
	return e.deliveries.RedeliverSeen(ctx, id, seen)
}
