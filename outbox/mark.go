package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/cleantext"
)

// settled is what became of rows, to be told once it is committed.
type settled struct {
	done, deferred, lost int
	failed, dead         []result
}

// result is what became of a row: nil is done.
type result struct {
	entry Entry
	why   error
}

// settle marks rows by what became of each. claimed, if not nil, is the claim that they must still have; else tx
// has them locked. A row that is another's by now is left as it is, and counted.
func (q *Queue) settle(ctx context.Context, tx *sql.Tx, results []result, claimed *time.Time) (settled, error) {
	var s settled
	var done []int64
	for _, r := range results {
		if r.why == nil {
			done = append(done, r.entry.ID)
		}
	}
	if len(done) > 0 {
		n, err := q.mark(ctx, tx, `status = 'done', last_error = NULL, next_attempt_at = NULL`, q.DB.Dialect().AnyInt("id", 1), claimed, database.Ints(done))
		if err != nil {
			return s, err
		}
		s.done, s.lost = n, len(done)-n
	}
	for _, r := range results {
		if r.why == nil {
			continue
		}
		n, err := q.settleFailure(ctx, tx, &s, r, claimed)
		if err != nil {
			return s, err
		}
		s.lost += 1 - n
	}
	return s, nil
}

// settleFailure returns 1 if the row was still the claim's.
func (q *Queue) settleFailure(ctx context.Context, tx *sql.Tx, s *settled, r result, claimed *time.Time) (int, error) {
	const byID = `id = $1`
	e, why := r.entry, r.why
	switch dead := errors.Is(why, errPermanent); {
	case errors.Is(why, errUnavailable):
		n, err := q.mark(ctx, tx, `status = 'pending', deferrals = deferrals + 1, next_attempt_at = $2, last_error = $3`, byID, claimed,
			e.ID, database.At(q.Now().Add(Backoff(e.Deferrals+1))), reason(why))
		s.deferred += n
		return n, err
	case dead || e.Attempts+1 >= q.MaxAttempts:
		spent := 1
		if dead {
			spent = 0
		}
		n, err := q.mark(ctx, tx, `status = 'dead_lettered', attempts = attempts + $2, next_attempt_at = NULL, last_error = $3`, byID, claimed,
			e.ID, spent, reason(why))
		if n > 0 {
			s.dead = append(s.dead, r)
		}
		return n, err
	default:
		n, err := q.mark(ctx, tx, `status = 'pending', attempts = attempts + 1, next_attempt_at = $2, last_error = $3`, byID, claimed,
			e.ID, database.At(q.Now().Add(Backoff(e.Attempts+1))), reason(why))
		if n > 0 {
			s.failed = append(s.failed, r)
		}
		return n, err
	}
}

// mark changes rows, if they are still the claim's, and returns how many were.
func (q *Queue) mark(ctx context.Context, tx *sql.Tx, set, where string, claimed *time.Time, args ...any) (int, error) {
	if claimed != nil {
		args = append(args, database.At(*claimed))
		where += fmt.Sprintf(` AND status = 'processing' AND claimed_at = $%d`, len(args))
	}
	res, err := tx.ExecContext(ctx, `UPDATE event_queue SET claimed_at = NULL, `+set+` WHERE `+where, args...)
	if err != nil {
		return 0, fmt.Errorf("mark rows of event_queue: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// report counts and logs what is committed.
func (q *Queue) report(ctx context.Context, s settled) {
	q.metrics.done.Add(ctx, int64(s.done))
	q.metrics.deferred.Add(ctx, int64(s.deferred))
	q.metrics.lostClaims.Add(ctx, int64(s.lost))
	q.metrics.failed.Add(ctx, int64(len(s.failed)))
	q.metrics.deadLettered.Add(ctx, int64(len(s.dead)))
	if s.lost > 0 {
		q.Logger.WarnContext(ctx, "rows of event_queue not marked: the claim was lost", slog.Int("rows", s.lost))
	}
	for _, r := range s.failed {
		q.Logger.WarnContext(ctx, "row of event_queue failed, it will be tried again", r.attrs()...)
	}
	for _, r := range s.dead {
		q.Logger.ErrorContext(ctx, "row of event_queue is dead_lettered", r.attrs()...)
	}
}

func (r result) attrs() []any {
	return []any{
		slog.Int64("row", r.entry.ID), slog.String("tenant", r.entry.TenantID), slog.String("event_id", r.entry.EventID),
		slog.String("event", r.entry.EventType), slog.Any("error", r.why),
	}
}

// reasonLimit is how many bytes of an error are stored.
const reasonLimit = 4096

func reason(err error) string { return cleantext.Cut(err.Error(), reasonLimit) }
