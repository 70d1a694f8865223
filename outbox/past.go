package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// Past is a page of events that were captured before.
type Past struct {
	Events []events.Event
	// Unreadable are the rows that were left out.
	Unreadable int
	// Next is where the next page begins; More says that there may be one.
	Next Place
	More bool
}

// Place is where a row stands in the order of time. The zero Place is before all.
type Place struct {
	CreatedAt time.Time
	ID        int64
}

// Past returns at most limit events of a tenant that are done, were published at after's place or later and before to, in the
// order of time: those that retention has left. A row that cannot be read is left out, counted and logged.
func (q *Queue) Past(ctx context.Context, tenantID string, after Place, to time.Time, limit int) (Past, error) {
	next := Past{Next: after}
	rows, err := q.DB.Own().QueryContext(ctx, `SELECT `+all+` FROM event_queue WHERE status = 'done'
		AND (created_at, id) > ($1, $2) AND created_at < $3 AND tenant_id = $4 ORDER BY created_at, id LIMIT $5`,
		database.At(after.CreatedAt), after.ID, database.At(to), tenantID, limit)
	if err != nil {
		return next, database.Explain(err)
	}
	found, err := scan(rows, nil, (*Entry).all)
	if err != nil {
		return next, database.Explain(err)
	}
	for _, e := range found {
		if e.CreatedAt.IsZero() {
			return next, fmt.Errorf("outbox: row %d of event_queue has a created_at that cannot be read", e.ID)
		}
		next.Next = Place{e.CreatedAt.Time, e.ID}
		ev, err := events.Queued(e.EventID, e.EventType, e.TenantID, e.Payload, e.Headers)
		if err != nil {
			next.Unreadable++
			q.Logger.WarnContext(ctx, "a past event cannot be read", result{e, err}.attrs()...)
			continue
		}
		next.Events = append(next.Events, ev)
	}
	next.More = len(found) == limit
	return next, nil
}
