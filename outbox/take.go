package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

const (
	// batch is how many rows one round takes at most.
	batch = 500
	// again is how many of them may be rows that were tried before: some, so that they do not starve, and not all, so that
	// they do not starve the others.
	again = 100
)

// The states of rows that relays ask for, each as the partial index of its own has it. What ends in a column is compared.
const (
	fresh   = `status = 'pending' AND next_attempt_at IS NULL`
	tried   = `status = 'pending' AND next_attempt_at IS NOT NULL AND next_attempt_at`
	claimed = `status = 'processing' AND claimed_at`
	// unstamped are rows that a program which is not ours is at: when it claimed them, they do not say.
	unstamped = claimed + ` IS NULL`
)

// takeable is what a relay may take, in the order in which it does. Each goes by a partial index of its own, however many rows
// wait. $1 is the limit, $2 that of rows that were tried before, $3 the time, $4 the latest claim that is over.
var takeable = []struct{ where, order, limit string }{
	{tried + ` <= $3`, `next_attempt_at, id`, `$2`},
	{claimed + ` <= $4`, `claimed_at, id`, `$1`},
	{fresh, `id`, `$1`},
}

// over is the latest claim that is over.
func over(now time.Time) database.Time { return database.At(now.Add(-Lease)) }

// take returns at most limit rows that wait for a relay, locked against others until tx ends. Those of the same kind come in
// the order of their age. only, if not nil, are the ids to look at.
func (q *Queue) take(ctx context.Context, tx *sql.Tx, now time.Time, limit int, only []int64) ([]Entry, error) {
	args := []any{limit, min(limit, again), database.At(now), over(now)}
	if only != nil {
		args = append(args, database.Ints(only))
	}
	var with, from []string
	for i, t := range takeable {
		if only != nil {
			t.where += ` AND ` + q.DB.Dialect().AnyInt("q.id", 5)
		}
		with = append(with, fmt.Sprintf(`t%d AS (SELECT %s FROM event_queue AS q WHERE %s ORDER BY %s LIMIT %s%s)`,
			i, said, t.where, t.order, t.limit, q.DB.Dialect().LockFree("q")))
		from = append(from, fmt.Sprintf(`SELECT * FROM t%d`, i))
	}
	rows, err := tx.QueryContext(ctx, `WITH `+strings.Join(with, ", ")+` `+strings.Join(from, " UNION ALL ")+` LIMIT $1`, args...)
	if err != nil {
		return nil, fmt.Errorf("take rows of event_queue: %w", err)
	}
	return scan(rows, nil, (*Entry).said)
}

func scan(rows *sql.Rows, out []Entry, fields func(*Entry) []any) ([]Entry, error) {
	defer rows.Close()
	for rows.Next() {
		var e Entry
		if err := rows.Scan(fields(&e)...); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// waiting reports whether there is a row to take. It opens no transaction, but for rows that are unstamped: they count as
// claimed now, so that they are taken over when that claim is over.
func (q *Queue) waiting(ctx context.Context) (bool, error) {
	now := q.Now()
	var some, foreign bool
	err := q.DB.Own().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM event_queue WHERE `+fresh+`)
		OR EXISTS (SELECT 1 FROM event_queue WHERE `+tried+` <= $1)
		OR EXISTS (SELECT 1 FROM event_queue WHERE `+claimed+` <= $2),
		EXISTS (SELECT 1 FROM event_queue WHERE `+unstamped+`)`, database.At(now), over(now)).Scan(&some, &foreign)
	if err == nil && foreign {
		err = q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE event_queue SET claimed_at = $1 WHERE `+unstamped, database.At(now))
			return err
		})
	}
	return some, database.Explain(err)
}

// read reads rows as events. places says which result each event is of; those of rows that cannot be read have the reason.
func read(entries []Entry) (evs []events.Event, places []int, results []result) {
	for i, e := range entries {
		ev, err := events.Queued(e.EventID, e.EventType, e.TenantID, e.Payload, e.Headers)
		if err != nil {
			results = append(results, result{e, Permanent(err)})
			continue
		}
		evs, places, results = append(evs, ev), append(places, i), append(results, result{entry: e})
	}
	return evs, places, results
}

func ids(entries []Entry) []int64 {
	out := make([]int64, len(entries))
	for i, e := range entries {
		out[i] = e.ID
	}
	return out
}
