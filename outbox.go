package loam

import (
	"context"

	"github.com/openloam/loam/outbox"
)

// OutboxEntries returns a page of the rows of event_queue, the dead_lettered ones unless q says otherwise, of all tenants.
func (e *Engine) OutboxEntries(ctx context.Context, q outbox.Query) ([]outbox.Entry, error) {
	return e.queue.List(ctx, q)
}

// Requeue makes a dead_lettered row of event_queue pending again, with all its attempts; a message that a bus could not bring
// is captured at once, and the error says why if it cannot be. outbox.ErrNotFound if there is no such row,
// outbox.ErrNotDeadLettered if it is in another state.
func (e *Engine) Requeue(ctx context.Context, id int64) error { return e.queue.Requeue(ctx, id) }
