package sequences_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/internal/dbtest"
)

// A connection of pgx's that was made in one synctest bubble cannot be used in the next, and to make one takes the server
// longer than all that a sequence does. So they are made outside of all bubbles, and are called there: for the caller that is
// a wait that ends by itself, in which the time of its bubble stands. What ends a context meanwhile comes after the call.

// outside has everything done by goroutines of no bubble.
type outside struct{ calls chan func() }

func newOutside(t testing.TB) *outside {
	t.Helper()
	o := &outside{make(chan func())}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f := range o.calls {
			f()
		}
	}()
	t.Cleanup(func() {
		close(o.calls)
		<-done
	})
	return o
}

// open opens a database whose connections are called outside.
func (o *outside) open(t testing.TB, at dbtest.Place, faults *dbtest.Faults) *database.DB {
	t.Helper()
	db, err := postgres.OpenConfig(t.Context(), postgres.Config{URL: at.At, Wait: time.Minute, Wrap: func(c driver.Connector) driver.Connector {
		return faults.Wrap(o.wrap(c))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// wrap makes the connections of c outside.
func (o *outside) wrap(c driver.Connector) driver.Connector {
	return &connector{c, o, make(chan made)}
}

type connector struct {
	driver.Connector
	outside *outside
	made    chan made
}

type made struct {
	conn *conn
	err  error
}

// Connect implements driver.Connector.
//
//nolint:contextcheck // a context of a bubble's cannot go outside
func (c *connector) Connect(context.Context) (driver.Conn, error) {
	c.outside.calls <- func() {
		inner, err := c.Connector.Connect(context.Background())
		if err != nil {
			c.made <- made{nil, err}
			return
		}
		out := &conn{inner.(pgxConn), make(chan func()), make(chan struct{})}
		go func() {
			for f := range out.calls {
				f()
				out.done <- struct{}{}
			}
		}()
		c.made <- made{out, nil}
	}
	m := <-c.made
	if m.err != nil {
		return nil, m.err
	}
	return m.conn, nil
}

// pgxConn is what pgx's connections implement.
type pgxConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.NamedValueChecker
}

// conn is called by one goroutine at a time.
type conn struct {
	pgxConn
	calls chan func()
	done  chan struct{}
}

// call has f called outside, with a context of there: one of a bubble's cannot go there.
func (c *conn) call(f func(ctx context.Context)) {
	c.calls <- func() { f(context.Background()) }
	<-c.done
}

// Close implements driver.Conn.
func (c *conn) Close() (err error) {
	c.call(func(context.Context) { err = c.pgxConn.Close() })
	close(c.calls)
	return err
}

// Ping implements driver.Pinger.
//
//nolint:contextcheck // see call
func (c *conn) Ping(context.Context) (err error) {
	c.call(func(ctx context.Context) { err = c.pgxConn.Ping(ctx) })
	return err
}

// ResetSession implements driver.SessionResetter.
//
//nolint:contextcheck // see call
func (c *conn) ResetSession(context.Context) (err error) {
	c.call(func(ctx context.Context) { err = c.pgxConn.ResetSession(ctx) })
	return err
}

// BeginTx implements driver.ConnBeginTx.
//
//nolint:contextcheck // see call
func (c *conn) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var inner driver.Tx
	var err error
	c.call(func(ctx context.Context) { inner, err = c.pgxConn.BeginTx(ctx, opts) })
	return &transaction{c, inner}, err
}

type transaction struct {
	conn  *conn
	inner driver.Tx
}

// Commit implements driver.Tx.
func (t *transaction) Commit() (err error) {
	t.conn.call(func(context.Context) { err = t.inner.Commit() })
	return err
}

// Rollback implements driver.Tx.
func (t *transaction) Rollback() (err error) {
	t.conn.call(func(context.Context) { err = t.inner.Rollback() })
	return err
}

// ExecContext implements driver.ExecerContext.
//
//nolint:contextcheck // see call
func (c *conn) ExecContext(_ context.Context, q string, args []driver.NamedValue) (res driver.Result, err error) {
	c.call(func(ctx context.Context) { res, err = c.pgxConn.ExecContext(ctx, q, args) })
	return res, err
}

// QueryContext implements driver.QueryerContext. It reads all rows at once.
//
//nolint:contextcheck // see call
func (c *conn) QueryContext(_ context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	var out rows
	var err error
	c.call(func(ctx context.Context) {
		var in driver.Rows
		if in, err = c.pgxConn.QueryContext(ctx, q, args); err == nil {
			err = errors.Join(out.read(in), in.Close())
		}
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// rows have been read.
type rows struct {
	columns []string
	values  [][]driver.Value
}

func (r *rows) read(in driver.Rows) error {
	r.columns = in.Columns()
	for {
		values := make([]driver.Value, len(r.columns))
		if err := in.Next(values); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.values = append(r.values, values)
	}
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	if len(r.values) == 0 {
		return io.EOF
	}
	copy(dest, r.values[0])
	r.values = r.values[1:]
	return nil
}
