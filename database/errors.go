package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
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
	// ErrBusy means that another process held SQLite's write lock for longer than the time limit.
	ErrBusy = errors.New("another process holds the database's write lock")
)

var explained = map[int]error{
	codeBusy:     ErrBusy,
	codeReadOnly: ErrReadOnly,
	codeCorrupt:  ErrNotADatabase,
	codeFull:     ErrFull,
	codeCantOpen: ErrCannotOpen,
	codeNotADB:   ErrNotADatabase,
}

// Explain adds to a driver's error what it means and which error of this package it is. Other errors come back as they
// are.
func Explain(err error) error {
	var coded interface{ Code() int }
	if err == nil || !errors.As(err, &coded) {
		return err
	}
	meaning := explained[coded.Code()&0xff]
	if meaning == nil || errors.Is(err, meaning) {
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// Unavailable reports whether err says that the database cannot be written now, whatever the statement: it is full,
// read-only, held by others, or gone.
func Unavailable(err error) bool {
	for _, e := range []error{ErrFull, ErrReadOnly, ErrBusy, ErrWait, ErrCannotOpen, ErrNotADatabase, sql.ErrConnDone, driver.ErrBadConn} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
