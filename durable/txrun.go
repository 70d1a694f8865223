package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// txHandler is the handler of RegisterTx.
type txHandler func(ctx context.Context, tx *sql.Tx, e events.Event) error

// Handle implements Handler.
func (h txHandler) Handle(context.Context, events.Event) error {
	return errors.New("durable: a transactional handler is called with a transaction only")
}

const (
	// undoneWait is how long a run waits whose transaction the database did not let be.
	undoneWait = time.Second
	// restAfter and rest leave SQLite's write lock to other processes: they look for it every 100 ms at the least often, and
	// one long transaction right after the other would keep it from them.
	restAfter = 20 * time.Millisecond
	rest      = 110 * time.Millisecond
)

// newTurns makes what transactional handlers take their turns by. SQLite has one connection that writes; on PostgreSQL
// they may hold half of the pool, and the other half is for publishers, claims and outcomes.
func newTurns(db *database.DB, concurrency int) chan struct{} {
	if db.Dialect() == database.SQLite {
		return make(chan struct{}, 1)
	}
	if pool := db.Write().Stats().MaxOpenConnections; pool > 0 {
		concurrency = max(1, pool/2)
	}
	return make(chan struct{}, concurrency)
}

// txRun is a run of a transactional handler.
type txRun struct {
	d       *Deliveries
	r       *run
	handler txHandler

	begun     chan struct{} // closed when the handler begins
	running   bool          // it has begun
	handled   <-chan result
	returned  bool // in time: res is set
	res       result
	cause     error // why the handler's context had ended, nil if it had not
	undone    bool  // the database made the handler fail
	out       outcome
	committed bool // or at least asked to be
}

// ending is what a transaction ended with.
type ending struct {
	outcome
	written bool  // the outcome is, or was refused
	refused error // errRefused
}

// executeTx is execute for a transactional handler. Its time begins when its transaction has.
func (d *Deliveries) executeTx(ctx context.Context, r *run, h txHandler, free func()) {
	t := &txRun{d: d, r: r, handler: h, begun: make(chan struct{})}
	ended := contained(func() ending { return t.end(ctx, t.transact(ctx)) }, func(p *PanicError) ending {
		return ending{outcome: d.decide(context.Cause(ctx), r, panicked(p))}
	})
	var e ending
	select {
	case <-t.begun:
		e = await(ctx, d, r, ended, free)
	case e = <-ended:
	}
	if e.written {
		d.written(ctx, r, e.outcome, e.refused)
		return
	}
	d.write(ctx, r, e.outcome)
}

// transact waits for its turn and for a transaction, as long as it takes, and runs the handler in it. It returns when the
// transaction has ended, which is not always when the handler has; without an error, it was committed.
func (t *txRun) transact(ctx context.Context) error {
	select {
	case t.d.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.d.stopping:
		return ErrStopping
	}
	defer t.giveTurn()
	for try := 1; ; try++ {
		select {
		case <-t.d.stopping: // a turn that comes only now is none
			return ErrStopping
		default:
		}
		err := t.d.DB.InTx(ctx, t.do)
		if t.running {
			return err
		}
		if ctx.Err() == nil {
			t.d.outage.Failed(ctx, t.d.Logger, "beginning a handler's transaction", err, t.r.row.attrs()...)
		}
		if !pause(ctx, t.d.stopping, backoff(try)) {
			return err
		}
	}
}

func (t *txRun) giveTurn() {
	if t.d.DB.Dialect() == database.SQLite && t.running && time.Since(t.r.begun) > restAfter {
		time.AfterFunc(rest, func() { <-t.d.turns })
		return
	}
	<-t.d.turns
}

var errNotCommitted = errors.New("the handler has not succeeded in time")

// do is the transaction. It does not wait for a handler whose context has ended: what that one writes later has no
// transaction any more.
func (t *txRun) do(ctx context.Context, tx *sql.Tx) error {
	if err := t.savepoint(ctx, tx, `SAVEPOINT loam_run`); err != nil {
		return err
	}
	t.r.started, t.r.begun, t.running = t.d.Now(), time.Now(), true
	limited, stop := context.WithTimeoutCause(ctx, t.d.timeout(&t.r.sub), ErrTimeout)
	defer stop()
	close(t.begun)
	t.handled = contained(func() result {
		return t.d.handle(limited, t.r, func(ctx context.Context, e events.Event) error { return t.handler(ctx, tx, e) })
	}, panicked)
	select {
	case t.res = <-t.handled:
		t.returned = true
	case <-limited.Done():
	}
	t.cause = context.Cause(limited)
	if !t.returned {
		return errNotCommitted
	}
	if t.res.err != nil {
		t.undone = t.cause == nil && t.res.steer == nil && t.res.stack == "" && undoing(limited, tx, t.res.err)
		return errNotCommitted
	}
	t.out = outcome{kind: success, took: time.Since(t.r.begun)}
	if err := t.savepoint(ctx, tx, `RELEASE SAVEPOINT loam_run`); err != nil {
		return fmt.Errorf("the transaction was rolled back while the handler ran: did it go on after an error of the database's? %w", err)
	}
	if err := t.d.writeSuccess(ctx, tx, t.r, &t.out, false); err != nil {
		return err
	}
	t.committed = true
	return nil
}

// savepoint shows whether a transaction of SQLite's is still the one that was begun: after some errors, a statement's that was
// interrupted for one, SQLite rolls back by itself, and the next statement would be committed at once. PostgreSQL refuses all
// statements after an error.
func (t *txRun) savepoint(ctx context.Context, tx *sql.Tx, statement string) error {
	if t.d.DB.Dialect() != database.SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, statement)
	return err
}

// undoing reports whether a handler has failed because its transaction was in conflict, or its database is away. That a
// connection broke may be about another one of the handler's, so its transaction's own is asked.
func undoing(ctx context.Context, tx *sql.Tx, err error) bool {
	if <-contained(func() bool {
		err := database.Explain(err)
		return errors.Is(err, database.ErrConflict) || errors.Is(err, database.ErrBusy) || errors.Is(err, database.ErrFull) ||
			errors.Is(err, database.ErrReadOnly)
	}, func(*PanicError) bool { return false }) {
		return true
	}
	_, err = tx.ExecContext(ctx, `SELECT 1`)
	return database.Unavailable(database.Explain(err))
}

// end makes the outcome of what the transaction ended with, when the handler has returned too.
func (t *txRun) end(ctx context.Context, err error) ending {
	cause := context.Cause(ctx)
	switch {
	case !t.running:
		return ending{outcome: outcome{kind: cut}}
	case err == nil:
		return ending{outcome: t.out, written: true}
	case t.undone:
		return ending{outcome: t.again(t.res.text)}
	case !t.returned:
		return ending{outcome: t.d.decide(t.cause, t.r, late(<-t.handled, t.cause))}
	case t.res.err != nil && t.cause != nil:
		return ending{outcome: t.d.decide(t.cause, t.r, late(t.res, t.cause))}
	case t.res.err != nil:
		return ending{outcome: t.d.decide(nil, t.r, t.res)}
	case errors.Is(err, errRefused):
		return ending{outcome: t.out, written: true, refused: errRefused}
	case t.committed && !database.Rejected(err):
		out := t.again(errorText(err))
		if cause != nil {
			out = t.d.decide(cause, t.r, result{err: err, text: out.text})
		}
		out.unsure = true
		return ending{outcome: out}
	case cause == nil && (errors.Is(err, database.ErrConflict) || database.Unavailable(err)):
		return ending{outcome: t.again(errorText(err))}
	case cause == nil && errors.Is(err, sql.ErrTxDone):
		err = fmt.Errorf("the handler has ended its transaction itself, which it must not: %w", err)
		return ending{outcome: outcome{kind: parked, took: t.out.took, text: errorText(err)}} // every run would do it again
	}
	return ending{outcome: t.d.decide(cause, t.r, result{err: err, text: errorText(err)})}
}

// again is the outcome of a transaction that failed for no fault of the handler's.
func (t *txRun) again(text string) outcome {
	return outcome{kind: undone, took: time.Since(t.r.begun), text: text, next: t.d.Now().Add(undoneWait)}
}

// late is what a handler's result counts as that came after the end of its context.
func late(res result, cause error) result {
	switch {
	case res.stack != "" || res.steer != nil:
		return res
	case res.err != nil:
		cause = fmt.Errorf("%w: %s", cause, message(res.err))
	}
	return result{err: cause, text: errorText(cause)}
}
