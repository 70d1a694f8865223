package outbox

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// Round takes what waits, at most 500 rows, and returns how many it has dealt with. An error says that the database failed;
// what was not dealt with is taken by a later round, here or elsewhere.
func (q *Queue) Round(ctx context.Context) (int, error) {
	waits, err := q.waiting(ctx)
	if err != nil || !waits {
		return 0, err
	}
	return q.round(ctx)
}

// round is Round without a look before whether something waits.
func (q *Queue) round(ctx context.Context) (int, error) {
	if q.Hold() {
		return 0, nil
	}
	if q.Sink != nil {
		return q.send(ctx)
	}
	return q.capture(ctx, batch, nil)
}

// capture turns rows into deliveries and marks them, in one transaction. When the database can be written, but not for these
// rows, they are tried in halves, so that one bad row does not keep the others; alone, it spends an attempt.
func (q *Queue) capture(ctx context.Context, limit int, only []int64) (int, error) {
	var found []Entry
	var s settled
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if found, err = q.take(ctx, tx, q.Now(), limit, only); err != nil {
			return err
		}
		evs, places, results := read(found)
		refused, err := q.Capturer.CaptureAll(ctx, tx, evs)
		if err != nil {
			return err
		}
		for i, why := range refused {
			if why != nil {
				results[places[i]].why = Permanent(why)
			}
		}
		s, err = q.settle(ctx, tx, results, nil)
		return err
	})
	switch {
	case err == nil:
		q.report(ctx, s)
		return len(found), nil
	case len(found) == 0 || ctx.Err() != nil || database.Unavailable(err):
		return 0, err
	case len(found) == 1:
		return 1, q.failAlone(ctx, found[0].ID, err)
	}
	q.Logger.ErrorContext(ctx, "rows of event_queue cannot be captured, trying them in halves",
		slog.Int("rows", len(found)), slog.Any("error", err))
	rows := ids(found)
	half := len(rows) / 2
	n, err := q.capture(ctx, half, rows[:half])
	if err != nil {
		return n, err
	}
	m, err := q.capture(ctx, len(rows)-half, rows[half:])
	return n + m, err
}

// failAlone spends an attempt of a row that cannot be captured; but none if nobody could say whether its tenant exists.
func (q *Queue) failAlone(ctx context.Context, id int64, why error) error {
	var s settled
	if errors.Is(why, tenant.ErrDirectory) {
		why = Unavailable(why)
	}
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		found, err := q.take(ctx, tx, q.Now(), 1, []int64{id})
		if err == nil && len(found) == 1 {
			s, err = q.settle(ctx, tx, []result{{found[0], why}}, nil)
		}
		return err
	})
	if err == nil {
		q.report(ctx, s)
	}
	return err
}
