package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/cleantext"
	"github.com/openloam/loam/tenant"
)

var errHeld = errors.New("the clock of this process is off")

// Attempts implements Inbox.
func (q *Queue) Attempts() int { return q.MaxAttempts }

// Receive implements Inbox: all events in one transaction, and when the database takes others but not these, in halves, so that
// one bad event does not keep the rest.
func (q *Queue) Receive(ctx context.Context, evs []events.Event) []error {
	results := make([]error, len(evs))
	if q.Hold() {
		return fill(results, Unavailable(errHeld))
	}
	q.receive(ctx, evs, results)
	return results
}

func (q *Queue) receive(ctx context.Context, evs []events.Event, results []error) {
	if len(evs) == 0 {
		return
	}
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		refused, err := q.Capturer.CaptureAll(ctx, tx, evs)
		if err != nil {
			return err
		}
		for i, why := range refused {
			results[i] = nil // also of a try before
			if why != nil {
				results[i] = Permanent(why)
			} else if q.KeepReceived {
				if _, err := q.insert(ctx, tx, evs[i], Done, "true"); err != nil {
					return err
				}
			}
		}
		return nil
	})
	half := len(evs) / 2
	switch {
	case err == nil:
	case ctx.Err() != nil, database.Unavailable(err), errors.Is(err, database.ErrConflict), errors.Is(err, tenant.ErrDirectory):
		fill(results, Unavailable(err))
	case half == 0:
		if results[0] = err; errors.Is(err, events.ErrIDReused) { // which KeepReceived has found
			results[0] = Permanent(err)
		}
	default:
		q.receive(ctx, evs[:half], results[:half])
		q.receive(ctx, evs[half:], results[half:])
	}
}

func fill(results []error, err error) []error {
	for i := range results {
		results[i] = err
	}
	return results
}

// What is stored of a message that cannot be read, at most. An id that is longer is not one.
const (
	letterID   = 200
	letterText = 1 << 20
)

// What an insert does when a letter's event, or the letter itself, has a row. That it is another letter is asked once more, for
// two who write one at the same time.
const (
	theRow = `(coalesce(tenant_id, ''), event_id) WHERE event_id IS NOT NULL DO UPDATE
		SET status = excluded.status, attempts = excluded.attempts, last_error = excluded.last_error, origin = excluded.origin,
		    claimed_at = NULL, next_attempt_at = NULL
		WHERE event_queue.origin IS DISTINCT FROM excluded.origin
		  AND event_queue.event_type IS NOT DISTINCT FROM excluded.event_type AND event_queue.payload IS NOT DISTINCT FROM excluded.payload`
	aRow = `(origin) WHERE origin IS NOT NULL DO NOTHING`
)

// DeadLetter implements Inbox. If the message is an event that this service has in its queue, because it sent it, that row is
// the letter. If another event has its id, the letter has none.
func (q *Queue) DeadLetter(ctx context.Context, l Letter) error {
	if l.Origin == "" {
		return errors.New("outbox: DeadLetter: Origin: is empty; it must say where the bus has the message")
	}
	if tenant.CheckID(l.TenantID) != nil {
		l.TenantID = ""
	}
	if l.EventID = cleantext.Cut(l.EventID, letterText); len(l.EventID) > letterID {
		l.EventID = ""
	}
	l.EventType, l.Payload, l.Headers = cleantext.Cut(l.EventType, reasonLimit), cleantext.Cut(l.Payload, letterText), cleantext.Cut(l.Headers, letterText)
	var added int64
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		added = 0 // also of a try before
		var there bool
		if err := tx.QueryRowContext(ctx, `SELECT count(*) > 0 FROM event_queue WHERE origin = $1`, l.Origin).Scan(&there); err != nil || there {
			return err
		}
		if l.EventID != "" {
			if added, err = q.insertLetter(ctx, tx, l, theRow); err != nil || added > 0 {
				return err
			}
		}
		nameless := l // l may be tried again
		nameless.EventID = ""
		added, err = q.insertLetter(ctx, tx, nameless, aRow)
		return err
	})
	if err != nil {
		err = fmt.Errorf("store message %s as dead_lettered: %w", l.Origin, err)
		if ctx.Err() != nil || database.Unavailable(err) || errors.Is(err, database.ErrConflict) {
			err = Unavailable(err)
		}
		return err
	}
	q.metrics.deadLettered.Add(ctx, added)
	return nil
}

func (q *Queue) insertLetter(ctx context.Context, tx *sql.Tx, l Letter, conflict string) (int64, error) {
	why := "it was given up"
	if l.Why != nil {
		why = reason(l.Why)
	}
	orNull := func(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
	res, err := tx.ExecContext(ctx, `INSERT INTO event_queue
		(event_id, tenant_id, event_type, payload, headers, status, attempts, last_error, origin, created_at)
		VALUES ($1, $2, $3, $4, $5, 'dead_lettered', $6, $7, $8, $9) ON CONFLICT `+conflict,
		orNull(l.EventID), orNull(l.TenantID), l.EventType, l.Payload, l.Headers, l.Attempts, why, l.Origin, database.At(q.Now()))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
