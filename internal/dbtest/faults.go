package dbtest

import (
	"context"
	"database/sql/driver"
	"sync"
)

// Op is one call to the database.
type Op struct {
	// Kind is begin, commit, exec or query.
	Kind string
	// SQL is the statement's text, for exec and query.
	SQL string
	// Args are its arguments.
	Args []driver.NamedValue
}

// Faults injects failures. The zero Faults injects none.
type Faults struct {
	mu            sync.Mutex
	before, after func(Op) error
}

// Before calls f before each operation; an error is its result, and the operation is not done. nil takes it away.
func (f *Faults) Before(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = fn
}

// After calls f after each operation that succeeded; an error is its result, as when the answer is lost. nil takes it
// away. For queries, it is called before the rows are read.
func (f *Faults) After(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = fn
}

func (f *Faults) do(op Op, call func() error) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return err
		}
	}
	if err := call(); err != nil {
		return err
	}
	if after != nil {
		return after(op)
	}
	return nil
}

// Wrap returns c with the failures. It is for a database that a test opens itself.
func (f *Faults) Wrap(c driver.Connector) driver.Connector { return connector{c, f} }

type connector struct {
	driver.Connector
	faults *Faults
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner.(fullConn), c.faults}, nil
}

// fullConn is what the connections of both drivers implement.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type conn struct {
	fullConn
	faults *Faults
}

// Unwrap returns the driver's connection.
func (c *conn) Unwrap() any { return c.fullConn }

// CheckNamedValue implements driver.NamedValueChecker, as far as the driver does: pgx's takes every value as it is.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.fullConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// IsValid implements driver.Validator, as far as the driver does.
func (c *conn) IsValid() bool {
	validator, ok := c.fullConn.(driver.Validator)
	return !ok || validator.IsValid()
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.faults.do(Op{Kind: "begin"}, func() (err error) {
		begun, err := c.fullConn.BeginTx(ctx, opts)
		if err == nil {
			tx = begun // never a nil pointer
		}
		return err
	})
	if err != nil {
		if tx != nil {
			_ = tx.Rollback()
		}
		return nil, err
	}
	return &transaction{tx, c.faults}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.faults.do(Op{"exec", q, args}, func() (err error) {
		res, err = c.fullConn.ExecContext(ctx, q, args)
		return err
	})
	return res, err
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.faults.do(Op{"query", q, args}, func() (err error) {
		rows, err = c.fullConn.QueryContext(ctx, q, args)
		return err
	})
	if err != nil && rows != nil {
		_ = rows.Close()
		return nil, err
	}
	return rows, err
}

type transaction struct {
	driver.Tx
	faults *Faults
}

// Commit fails with the transaction rolled back if Before says so, and with it committed if After does.
func (t *transaction) Commit() error {
	ran := false
	err := t.faults.do(Op{Kind: "commit"}, func() error {
		ran = true
		return t.Tx.Commit()
	})
	if err != nil && !ran {
		_ = t.Rollback()
	}
	return err
}
