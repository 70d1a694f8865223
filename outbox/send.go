package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
)

const (
	// sendMargin is how long before its claim is over a relay stops sending.
	sendMargin = 30 * time.Second
	// probe is how many rows are tried while the sink is away.
	probe = 1
	// markLimit is the time limit of one try to mark what was sent, and markTries how often it is made.
	markLimit = 30 * time.Second
	markTries = 5
)

const sending = "sending events to the sink"

// send claims rows, hands them to the sink with no transaction open, and marks what became of them.
func (q *Queue) send(ctx context.Context) (int, error) {
	limit := batch
	if q.away.Load() > 0 {
		limit = probe
	}
	start := time.Now() // by the monotonic clock, and before the database can have seen the claim
	claimed := database.At(q.Now()).Time
	var found []Entry
	err := q.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if found, err = q.take(ctx, tx, claimed, limit, nil); err != nil || len(found) == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE event_queue SET status = 'processing', claimed_at = $2 WHERE `+q.DB.Dialect().AnyInt("id", 1),
			database.Ints(ids(found)), database.At(claimed))
		if err != nil {
			return err
		}
		return name(ctx, tx, found)
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	evs, places, results := read(found)
	sctx, cancel := context.WithDeadline(ctx, start.Add(Lease-sendMargin))
	defer cancel()
	sent := q.Sink.Send(sctx, evs)
	if len(sent) != len(evs) {
		return 0, fmt.Errorf("outbox: the sink's Send returned %d results for %d events", len(sent), len(evs))
	}
	for i, err := range sent {
		if err != nil && sctx.Err() != nil { // the time was over, or the relay stops: it says nothing about the event
			err = Unavailable(err)
		}
		results[places[i]].why = err
	}
	if ctx.Err() == nil && len(sent) > 0 {
		q.follow(ctx, results)
	}
	return len(found), q.markSent(ctx, results, claimed)
}

// name gives rows an event id that have none, so that one that is sent again is known there.
func name(ctx context.Context, tx *sql.Tx, entries []Entry) error {
	for i, e := range entries {
		if e.EventID != "" {
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make an event id: %w", err)
		}
		entries[i].EventID = id.String()
		if _, err := tx.ExecContext(ctx, `UPDATE event_queue SET event_id = $2 WHERE id = $1`, e.ID, id.String()); err != nil {
			return err
		}
	}
	return nil
}

// markSent writes what became of rows that were sent. It is tried for a while, also when the relay stops: a row that is not
// marked is sent again when its claim is over.
func (q *Queue) markSent(ctx context.Context, results []result, claimed time.Time) error {
	ctx = context.WithoutCancel(ctx)
	var before settled // of the try before, which may have been committed
	for try := 1; ; try++ {
		var s settled
		mctx, cancel := context.WithTimeout(ctx, markLimit)
		err := q.DB.InTxRetry(mctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			s, err = q.settle(ctx, tx, results, &claimed)
			return err
		})
		cancel()
		if err == nil {
			if s.lost > 0 && try > 1 && q.Now().Sub(claimed) < Lease { // nobody else can have them yet
				s = before
			}
			q.report(ctx, s)
			return nil
		}
		before = s
		if try == markTries {
			return fmt.Errorf("mark %d rows that were sent: %w", len(results), err)
		}
		wait(ctx, 100*time.Millisecond<<try, nil)
	}
}

// follow notes whether the sink can be reached.
func (q *Queue) follow(ctx context.Context, results []result) {
	for _, r := range results {
		if errors.Is(r.why, errUnavailable) {
			if q.away.Add(1) == 1 {
				q.awaySince.Store(q.Now().UnixNano())
			}
			q.sending.Failed(ctx, q.Logger, sending, r.why)
			return
		}
	}
	q.away.Store(0)
	q.sending.Succeeded(ctx, q.Logger, sending)
}

// Away is since when the sink could not be reached, as far as this process's relay knows; zero if it can be.
func (q *Queue) Away() time.Time {
	if q.away.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(0, q.awaySince.Load())
}
