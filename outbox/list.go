package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openloam/loam/database"
)

var (
	// ErrNotFound is returned for a row that is not there.
	ErrNotFound = errors.New("outbox: no such row of event_queue")
	// ErrNotDeadLettered is returned by Requeue for a row that is in another state.
	ErrNotDeadLettered = errors.New("outbox: the row of event_queue is not dead_lettered")
)

// Query says which rows List returns.
type Query struct {
	// Status is the state of the rows. Defaults to DeadLettered.
	Status Status
	// After is the id after which the page begins.
	After int64
	// Limit is how many rows a page has at most. Defaults to 100, at most 1,000.
	Limit int
}

// List returns rows in the order of their ids, of all tenants and of none.
func (q *Queue) List(ctx context.Context, query Query) ([]Entry, error) {
	switch query.Status {
	case "":
		query.Status = DeadLettered
	case Pending, Processing, Done, DeadLettered:
	default:
		return nil, fmt.Errorf("outbox: List: Status: %q is none, it must be %s, %s, %s or %s", query.Status, Pending, Processing, Done, DeadLettered)
	}
	if query.Limit == 0 {
		query.Limit = 100
	}
	if query.Limit < 0 || query.Limit > 1000 || query.After < 0 {
		return nil, fmt.Errorf("outbox: List: Limit: %d must be 1 to 1000, and After: %d not negative", query.Limit, query.After)
	}
	rows, err := q.DB.Own().QueryContext(ctx, `SELECT `+all+` FROM event_queue WHERE status = $1 AND id > $2 ORDER BY id LIMIT $3`,
		query.Status, query.After, query.Limit)
	if err != nil {
		return nil, database.Explain(err)
	}
	return scan(rows, nil, (*Entry).all)
}

// Requeue makes a dead_lettered row pending again, with all its attempts, in a transaction of its own. ErrNotFound or
// ErrNotDeadLettered if it cannot.
func (q *Queue) Requeue(ctx context.Context, id int64) error {
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE event_queue SET status = 'pending', attempts = 0, deferrals = 0, next_attempt_at = NULL
			WHERE id = $1 AND status = 'dead_lettered'`, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); n > 0 || err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM event_queue WHERE id = $1`, id).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return ErrNotFound
		}
		return ErrNotDeadLettered
	})
	if err != nil {
		return fmt.Errorf("requeue row %d: %w", id, err)
	}
	q.Nudge()
	return nil
}
