package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLite's primary result codes (https://www.sqlite.org/rescode.html), as the driver's errors report them.
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

var (
	// ErrFull means that the disk or the database is full. The transaction was rolled back.
	ErrFull = errors.New("the disk or the database is full; nothing of this transaction was written")
	// ErrReadOnly means that the database cannot be written.
	ErrReadOnly = errors.New("the database is read-only; Loam writes to it and to its directory")
	// ErrNotADatabase means that the file is something else, or damaged.
	ErrNotADatabase = errors.New("the file is not a database, or it is damaged")
	// ErrCannotOpen means that the database cannot be opened.
	ErrCannotOpen = errors.New("the database file cannot be opened; its directory must exist and be writable")
	// ErrBusy means that another process held SQLite's write lock, or a lock in PostgreSQL, for longer than the time limit.
	ErrBusy = errors.New("another process holds the database's write lock")
	// ErrConflict means that PostgreSQL chose this transaction to end a deadlock or a serialization conflict. It was rolled
	// back; try it again.
	ErrConflict = errors.New("the transaction was in conflict with another and was rolled back; try it again")
	// ErrUnreachable means that PostgreSQL cannot be reached, is starting or stopping, or the connection broke. Whether a
	// transaction that was being committed is there, is not known.
	ErrUnreachable = errors.New("PostgreSQL cannot be reached")
	// ErrTooMany means that PostgreSQL has no connection left for this process.
	ErrTooMany = errors.New("PostgreSQL has no connection left; raise max_connections, or lower the pools of its clients")
	// ErrRefused means that PostgreSQL does not let this user in, or has no such database.
	ErrRefused = errors.New("PostgreSQL does not let this user in, or has no such database")
)

// explained has the meanings of SQLite's codes.
var explained = map[int]error{
	codeBusy:     ErrBusy,
	codeReadOnly: ErrReadOnly,
	codeCorrupt:  ErrNotADatabase,
	codeFull:     ErrFull,
	codeCantOpen: ErrCannotOpen,
	codeNotADB:   ErrNotADatabase,
}

// explainedStates has the meanings of PostgreSQL's SQLSTATEs (https://www.postgresql.org/docs/15/errcodes-appendix.html),
// by the whole state or by its class.
var explainedStates = map[string]error{
	"08": ErrUnreachable, "57P01": ErrUnreachable, "57P02": ErrUnreachable, "57P03": ErrUnreachable, "57P05": ErrUnreachable,
	"40001": ErrConflict, "40P01": ErrConflict, "55P03": ErrBusy,
	"53100": ErrFull, "53300": ErrTooMany, "25006": ErrReadOnly,
	"28": ErrRefused, "3D000": ErrRefused, "42501": ErrRefused,
}

// Explain adds to a driver's error what it means and which error of this package it is. Other errors come back as they
// are.
func Explain(err error) error {
	meaning := meaning(err)
	if meaning == nil || errors.Is(err, meaning) {
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// meaning is the error of this package that a driver's error is; nil if it is none.
func meaning(err error) error {
	var coded interface{ Code() int }
	var stated interface{ SQLState() string }
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &stated) && len(stated.SQLState()) == 5:
		if m := explainedStates[stated.SQLState()]; m != nil {
			return m
		}
		return explainedStates[stated.SQLState()[:2]]
	case errors.As(err, &coded):
		return explained[coded.Code()&0xff]
	case broken(err):
		return ErrUnreachable
	}
	return nil
}

// broken reports whether a connection could not be made, or broke.
func broken(err error) bool {
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || pgconn.SafeToRetry(err) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// Unavailable reports whether err says that the database cannot be written now, whatever the statement: it is full,
// read-only, held by others, or cannot be reached.
func Unavailable(err error) bool {
	for _, e := range []error{
		ErrFull, ErrReadOnly, ErrBusy, ErrWait, ErrCannotOpen, ErrNotADatabase, ErrUnreachable, ErrTooMany, ErrRefused, sql.ErrConnDone, driver.ErrBadConn,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
