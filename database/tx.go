package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openloam/loam/internal/txmark"
)

// ErrWait is returned when no write connection was to be had within the time limit.
var ErrWait = errors.New("database: waited too long for a write connection; most likely a transaction is held open: " +
	"slow work inside InTx, or a transaction begun outside InTx whose owner calls the engine without passing it")

// InTx runs fn in one transaction: committed when fn returns nil, else rolled back, also when fn panics. The context that
// fn gets is marked, so that a call on it that would open a second transaction returns ErrInTransaction at once.
//
// It waits at most Config.Wait for a connection (ErrWait), and less if ctx ends. When ctx ends in the middle,
// everything is rolled back. Errors of the database are explained (see Explain). On SQLite all writers queue here, one
// after the other. On PostgreSQL a transaction in conflict with another is ErrConflict; it is not repeated, for fn may not be
// made for it.
func (db *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return db.inTx(ctx, false, fn)
}

// conflictTries is how often InTxRetry runs its function at most.
const conflictTries = 4

// InTxRetry is InTx for a function that may run again: of a transaction that PostgreSQL rolled back because it was in
// conflict with another, nothing is there. After four tries the conflict is reported.
func (db *DB) InTxRetry(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := db.InTx(ctx, fn)
		if try == conflictTries || !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// InTxFirst is InTx for what cannot wait: it goes before every InTx that is still waiting. The renewal of claims uses it.
func (db *DB) InTxFirst(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return db.inTx(ctx, true, fn)
}

func (db *DB) inTx(ctx context.Context, first bool, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if txmark.In(ctx, db) {
		return txmark.ErrInTransaction
	}
	tx, release, err := db.begin(ctx, first)
	if err != nil {
		return Explain(err)
	}
	defer release()
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback() // the first error is the one to report; after a full disk SQLite has rolled back already
		}
	}()
	var after []func()
	if err := fn(context.WithValue(txmark.With(ctx, db), afterKey{db}, &after), tx); err != nil {
		return Explain(why(ctx, err))
	}
	if err := tx.Commit(); err != nil {
		return Explain(fmt.Errorf("commit: %w", why(ctx, err)))
	}
	committed = true
	for _, f := range after {
		f()
	}
	return nil
}

type afterKey struct{ db *DB }

// AfterCommit has f called once the transaction is committed whose context ctx is, as InTx hands it out; f must not wait. It is
// not called after a rollback. Of a transaction that the caller began otherwise, the end is not known: AfterCommit reports
// false, and f is not called.
func (db *DB) AfterCommit(ctx context.Context, f func()) bool {
	after, ok := ctx.Value(afterKey{db}).(*[]func())
	if ok {
		*after = append(*after, f)
	}
	return ok
}

// why says that ctx has ended, where database/sql says only that the transaction it rolled back for that is done.
func why(ctx context.Context, err error) error {
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// InTransaction reports whether ctx was handed out by InTx (or marked by MarkTx) of this database.
func (db *DB) InTransaction(ctx context.Context) bool { return txmark.In(ctx, db) }

// MarkTx marks ctx as InTx does, for code that runs inside a transaction that the caller began.
func (db *DB) MarkTx(ctx context.Context) context.Context { return txmark.With(ctx, db) }

// beginTries is how often a transaction is begun when the connection turns out to be broken: nothing was done on it, and
// after a restart of PostgreSQL those of the pool that were used in the last second are not known to be broken.
const beginTries = 4

// Alone runs fn with a connection to write on, outside a transaction: each statement commits by itself. It waits as InTx does.
func (db *DB) Alone(ctx context.Context, fn func(ctx context.Context, conn *sql.Conn) error) error {
	if txmark.In(ctx, db) {
		return txmark.ErrInTransaction
	}
	conn, release, err := db.acquire(ctx, false)
	if err != nil {
		return Explain(err)
	}
	defer release()
	return Explain(fn(ctx, conn))
}

// begin takes a connection and begins a transaction on it.
func (db *DB) begin(ctx context.Context, first bool) (*sql.Tx, func(), error) {
	for try := 1; ; try++ {
		conn, release, err := db.acquire(ctx, first)
		if err != nil {
			return nil, nil, err
		}
		tx, err := conn.BeginTx(ctx, nil)
		if err == nil {
			return tx, release, nil
		}
		release()
		err = Explain(fmt.Errorf("begin: %w", err))
		if try == beginTries || !errors.Is(err, ErrUnreachable) {
			return nil, nil, err
		}
	}
}

// acquire takes a connection to write on. The limit is for the waiting only: a context with a limit of its own would roll
// the transaction back later.
func (db *DB) acquire(ctx context.Context, first bool) (*sql.Conn, func(), error) {
	limited, cancel := context.WithTimeoutCause(ctx, db.wait, ErrWait)
	defer cancel()
	pool, leave := db.write, func() {}
	switch {
	case db.dialect == SQLite:
		if err := db.gate.enter(limited, first); err != nil {
			return nil, nil, err
		}
		leave = db.gate.leave
	case first: // a pool that the application cannot exhaust
		pool = db.own
	}
	conn, err := pool.Conn(limited)
	if err != nil {
		leave()
		if limited.Err() != nil {
			err = context.Cause(limited)
		}
		return nil, nil, err
	}
	return conn, func() {
		_ = conn.Close() // gives it back to the pool
		leave()
	}, nil
}
