package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/openloam/loam/database"
)

// fake is a database that has no statements: its transactions begin and end, which is all that the gate is about.
type fake struct{}

var errNoStatements = errors.New("a fake has no statements")

func (fake) Connect(context.Context) (driver.Conn, error)                 { return fake{}, nil }
func (fake) Driver() driver.Driver                                        { return nil }
func (fake) Prepare(string) (driver.Stmt, error)                          { return nil, errNoStatements }
func (fake) Close() error                                                 { return nil }
func (fake) Begin() (driver.Tx, error)                                    { return fake{}, nil }
func (fake) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return fake{}, nil }
func (fake) Commit() error                                                { return nil }
func (fake) Rollback() error                                              { return nil }
func (fake) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(0), nil
}

// fakeDB makes a DB over a fake with one write connection. wait 0 is the default.
func fakeDB(t *testing.T, wait time.Duration) *database.DB {
	t.Helper()
	write, read := sql.OpenDB(fake{}), sql.OpenDB(fake{})
	write.SetMaxOpenConns(1)
	db, err := database.New(database.Config{Dialect: database.SQLite, Write: write, Read: read, Own: read, Wait: wait})
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

// hold begins a transaction and returns a function that ends it.
func hold(t *testing.T, db *database.DB) (release func()) {
	t.Helper()
	in, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
			close(in)
			<-end
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-in
	return func() {
		close(end)
		<-ended
	}
}

func nothing(context.Context, *sql.Tx) error { return nil }
