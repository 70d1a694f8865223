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

// Requeue makes a dead_lettered row pending again, with all its attempts, in a transaction of its own. One that a bus could not
// bring is captured there and then, for this service alone: the error says why it cannot be, and the row stays as it was.
// ErrNotFound or ErrNotDeadLettered if there is no such row.
func (q *Queue) Requeue(ctx context.Context, id int64) error {
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var e Entry
		query := `SELECT ` + all + ` FROM event_queue AS q WHERE id = $1` + q.DB.Dialect().LockSorted("q", "id")
		switch err := tx.QueryRowContext(ctx, query, id).Scan(e.all()...); {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNotFound
		case err != nil:
			return err
		case e.Status != DeadLettered:
			return ErrNotDeadLettered
		}
		status := Pending
		if e.Origin != "" {
			if err := q.bring(ctx, tx, e); err != nil {
				return err
			}
			status = Done
		}
		_, err := tx.ExecContext(ctx, `UPDATE event_queue SET status = $2, attempts = 0, deferrals = 0, next_attempt_at = NULL WHERE id = $1`, id, status)
		return err
	})
	if err != nil {
		return fmt.Errorf("requeue row %d: %w", id, err)
	}
	q.Nudge()
	return nil
}

// bring captures a message that a bus could not bring.
func (q *Queue) bring(ctx context.Context, tx *sql.Tx, e Entry) error {
	evs, _, results := read([]Entry{e})
	if len(evs) == 0 {
		return results[0].why
	}
	refused, err := q.Capturer.CaptureAll(ctx, tx, evs)
	return errors.Join(append(refused, err)...)
}
