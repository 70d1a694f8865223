package durable

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/openloam/loam/database"
)

type kind int

const (
	success kind = iota
	failure
	parked  // a failure after which trying again is useless
	snoozed // spends no attempt
	cut     // by shutdown: spends no attempt
	lost    // cut because the claim was lost, or seemed to be: spends no attempt, and counts like a crash
	undone  // its transaction was, and not by the handler: spends no attempt
)

// outcome is what a run ends with.
type outcome struct {
	kind  kind
	text  string // of the failure
	stack string
	took  time.Duration
	next  time.Time // when to try again; zero: by the schedule

	unsure bool // a commit's answer was lost: it may be a success already

	// Set by the transaction:
	attempts int
	dead     bool
	gone     bool // the row was no longer pending
}

// errRefused says that the claim is another's, or nobody's: the outcome was not written.
var errRefused = errors.New("the claim was lost")

const writingOutcomes = "writing outcomes"

// outcomeLimit is the time limit of one try to write an outcome.
const outcomeLimit = 30 * time.Second

// write commits the outcome, and tries again for as long as the database fails: the claim is renewed meanwhile, so that
// nobody else runs the handler. Neither the handler's deadline nor a shutdown ends it, only Wait's limit does.
func (d *Deliveries) write(ctx context.Context, r *run, out outcome) {
	for try := 1; ; try++ {
		var err error
		if try == 1 && out.kind == success {
			err = d.writeTogether(r, &out) //nolint:contextcheck // the outcome outlives the handler's context
		} else {
			err = d.tryWrite(r, &out, try > 1) //nolint:contextcheck // likewise
		}
		if err == nil || errors.Is(err, errRefused) {
			d.written(ctx, r, out, err)
			return
		}
		d.slots.returned(r.slot, false)
		if d.hard.Err() == nil {
			d.outage.Failed(ctx, d.Logger, writingOutcomes, err, r.row.attrs()...)
		}
		if !pause(d.hard, nil, backoff(try)) { //nolint:contextcheck // the handler is done with its own
			d.Logger.ErrorContext(ctx, "outcome not written before shutdown; the delivery runs again when its lease is over",
				append(r.row.attrs(), slog.Any("error", err))...)
			return
		}
	}
}

// written says what became of an outcome: it is committed, or refused.
func (d *Deliveries) written(ctx context.Context, r *run, out outcome, refused error) {
	d.outage.Succeeded(ctx, d.Logger, writingOutcomes)
	if refused == nil {
		d.reportOutcome(ctx, r, out)
		return
	}
	d.metrics.lostClaims.Add(ctx, 1, subscriberLabel(r.row.SubscriberKey))
	d.Logger.WarnContext(ctx, "outcome not written: the claim was lost", r.row.attrs()...)
}

func (d *Deliveries) tryWrite(r *run, out *outcome, again bool) error {
	ctx, cancel := context.WithTimeout(d.hard, outcomeLimit)
	defer cancel()
	return d.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		out.attempts, out.dead, out.gone = 0, false, false
		switch out.kind {
		case success:
			return d.writeSuccess(ctx, tx, r, out, again)
		case failure, parked:
			return d.writeFailure(ctx, tx, r, out, again)
		case snoozed, cut, lost, undone:
			return d.writeAgain(ctx, tx, r, out, again)
		}
		return nil
	})
}

func (d *Deliveries) writeSuccess(ctx context.Context, tx *sql.Tx, r *run, out *outcome, again bool) error {
	now := d.Now()
	held, err := d.Ledger.Done(ctx, tx, now, r.claim)
	if err != nil {
		return err
	}
	if !held {
		if again { // the first try may have been committed, and its answer lost
			if held, err = d.Ledger.DoneBy(ctx, tx, r.claim); held || err != nil {
				return err
			}
		}
		return errRefused
	}
	return out.update(tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = 'delivered', delivered_at = $3, last_error = NULL,
		next_attempt_at = NULL, unfinished = 0, duration_ms = $4, updated_at = $3
		WHERE tenant_id || '' = $1 AND id = $2 AND `+isPending, r.row.TenantID, r.row.ID, database.At(now), out.took.Milliseconds()))
}

func (d *Deliveries) writeFailure(ctx context.Context, tx *sql.Tx, r *run, out *outcome, again bool) error {
	err := d.release(ctx, tx, r)
	if again && errors.Is(err, errRefused) { // the first try may have been committed, and its answer lost
		return d.failedBefore(ctx, tx, r, out)
	}
	if err != nil {
		return err
	}
	now := d.Now()
	var history string
	err = tx.QueryRowContext(ctx, `UPDATE event_deliveries AS d SET attempts = attempts + 1, unfinished = 0, last_error = $3,
		duration_ms = $4, updated_at = $5 WHERE tenant_id || '' = $1 AND id = $2 AND `+isPending+` RETURNING attempts, errors`,
		r.row.TenantID, r.row.ID, out.text, out.took.Milliseconds(), database.At(now)).Scan(&out.attempts, &history)
	if errors.Is(err, sql.ErrNoRows) {
		out.gone = true
		return nil
	}
	if err != nil {
		return err
	}
	status, next := Pending, database.At(out.next)
	if out.next.IsZero() {
		next = database.At(r.started.Add(r.sub.wait(out.attempts)))
	}
	if out.kind == parked || out.attempts >= r.sub.MaxAttempts {
		out.dead, status, next = true, Dead, database.Time{}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET status = $3, next_attempt_at = $4, errors = $5
		WHERE tenant_id || '' = $1 AND id = $2`, r.row.TenantID, r.row.ID, status, next, addFailure(history, r, out)); err != nil {
		return err
	}
	if out.dead {
		return nil
	}
	return d.Enqueuer.Enqueue(ctx, tx, d.wakeups(r.row.TenantID, []Ref{{ID: r.row.ID, Key: r.row.SubscriberKey, at: next.Time}}))
}

// writeAgain leaves the row as it was, to be run again: at once when it was cut short, later when its handler asked for it.
func (d *Deliveries) writeAgain(ctx context.Context, tx *sql.Tx, r *run, out *outcome, again bool) error {
	err := d.release(ctx, tx, r)
	if out.unsure && errors.Is(err, errRefused) { // looked for only now: that commit may have been on its way until here
		done, err := d.Ledger.DoneBy(ctx, tx, r.claim)
		if err != nil {
			return err
		}
		if done {
			out.kind = success
			return nil
		}
	}
	if again && errors.Is(err, errRefused) { // committed before, or lost: the row is pending either way
		return nil
	}
	if err != nil {
		return err
	}
	next := r.row.NextAttemptAt
	if !out.next.IsZero() {
		next = database.At(out.next)
	}
	err = out.update(tx.ExecContext(ctx, `UPDATE event_deliveries AS d SET unfinished = CASE WHEN $5 THEN unfinished ELSE 0 END,
		next_attempt_at = $3, updated_at = $4 WHERE tenant_id || '' = $1 AND id = $2 AND `+isPending,
		r.row.TenantID, r.row.ID, next, database.At(d.Now()), out.kind == lost))
	if err != nil || out.gone {
		return err
	}
	ref := Ref{ID: r.row.ID, Key: r.row.SubscriberKey, at: out.next}
	if out.kind == lost {
		ref.Unfinished = r.row.Unfinished
	}
	return d.Enqueuer.Enqueue(ctx, tx, d.wakeups(r.row.TenantID, []Ref{ref}))
}

// failedBefore finds this run in the row's history: its outcome was committed by the first try.
func (d *Deliveries) failedBefore(ctx context.Context, tx *sql.Tx, r *run, out *outcome) error {
	row := EventDelivery{}
	err := tx.QueryRowContext(ctx, `SELECT attempts, status, errors FROM event_deliveries WHERE tenant_id || '' = $1 AND id = $2`,
		r.row.TenantID, r.row.ID).Scan(&row.Attempts, &row.Status, &row.Errors)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if h := row.History(); err != nil || len(h) == 0 || h[len(h)-1].Run != r.row.Runs || !h[len(h)-1].At.Equal(database.At(r.started).Time) {
		return errRefused
	}
	out.attempts, out.dead = row.Attempts, row.Status == Dead
	return nil
}

// release gives the claim back; errRefused if it is not held.
func (d *Deliveries) release(ctx context.Context, tx *sql.Tx, r *run) error {
	held, err := d.Ledger.Release(ctx, tx, r.claim)
	if err == nil && !held {
		return errRefused
	}
	return err
}

// update notes a row that the statement did not find: an operator, or a foreign hand, was there in between.
func (out *outcome) update(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	out.gone = n == 0
	return err
}

// addFailure appends the run to the row's history.
func addFailure(history string, r *run, out *outcome) string {
	row := EventDelivery{Errors: history}
	h := append(row.History(), Failure{
		At: database.At(r.started), Run: r.row.Runs, Error: out.text, Stack: out.stack, DurationMS: out.took.Milliseconds(),
	})
	text, _ := json.Marshal(h[max(0, len(h)-historyLimit):]) // clean texts and numbers always encode
	return string(text)
}

// reportOutcome counts and logs what is committed.
func (d *Deliveries) reportOutcome(ctx context.Context, r *run, out outcome) {
	attrs := append(r.row.attrs(), slog.Duration("took", out.took))
	label := subscriberLabel(r.row.SubscriberKey)
	switch {
	case out.gone:
		d.metrics.rowsGone.Add(ctx, 1, label)
		d.Logger.ErrorContext(ctx, "the run has ended, but its row is no longer pending: somebody changed or deleted it", attrs...)
	case out.kind == success:
		d.metrics.delivered.Add(ctx, 1, label)
		d.Logger.DebugContext(ctx, "delivered", attrs...)
	case out.kind == cut, out.kind == lost:
		d.Logger.InfoContext(ctx, "run cut short, it will run again", attrs...)
	case out.kind == undone:
		d.Logger.WarnContext(ctx, "the database undid the handler's transaction, it will run again", append(attrs, slog.String("error", out.text))...)
	case out.kind == snoozed:
		d.Logger.InfoContext(ctx, "snoozed by its handler", append(attrs, slog.Time("until", out.next))...)
	default:
		d.metrics.failed.Add(ctx, 1, label)
		attrs = append(attrs, slog.Int("attempts", out.attempts), slog.String("error", out.text))
		if out.dead {
			d.metrics.died(ctx, d.Registry, r.row.SubscriberKey)
			d.Logger.ErrorContext(ctx, "delivery is dead", attrs...)
			return
		}
		d.Logger.WarnContext(ctx, "delivery failed, it will be tried again", attrs...)
	}
}
