// Package database is the handle that the rest of Loam works with, and the one place that knows how SQLite and
// PostgreSQL differ.
//
// Open one with database/sqlite. A DB is safe for use by several goroutines.
//
// Statements are written with numbered parameters ($1, $2) and bind their arguments. A list of ids is bound as one
// parameter, see AnyOf and List.
package database

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
)

// Dialect names a kind of database.
type Dialect string

// SQLite is the embedded default.
const SQLite Dialect = "sqlite"

// DefaultWait is how long a call waits for a write connection before it says what is likely wrong.
const DefaultWait = 10 * time.Second

// Config is what New needs. Applications do not call New: they open a database with database/sqlite.
type Config struct {
	// Dialect is the kind of database. Required.
	Dialect Dialect
	// Write is the pool for transactions that write: on SQLite one connection, whose transactions take the write lock
	// when they begin. Required.
	Write *sql.DB
	// Read is a pool for the application's reading. Required.
	Read *sql.DB
	// Own is a pool for Loam's own reading, so that what the application holds open does not stop deliveries. Required.
	Own *sql.DB
	// Wait is how long InTx waits for a write connection. Defaults to DefaultWait.
	Wait time.Duration
}

// DB is an open database.
type DB struct {
	dialect Dialect
	write   *sql.DB
	read    *sql.DB
	own     *sql.DB
	mapper  *bun.DB
	gate    gate
	wait    time.Duration
}

// New makes a DB of two open pools. It does no I/O.
func New(cfg Config) (*DB, error) {
	var errs []error
	if cfg.Dialect != SQLite {
		errs = append(errs, fmt.Errorf("Dialect: %q is not known, it must be %q", cfg.Dialect, SQLite))
	}
	if cfg.Write == nil {
		errs = append(errs, errors.New("Write: is nil"))
	}
	if cfg.Read == nil {
		errs = append(errs, errors.New("Read: is nil"))
	}
	if cfg.Own == nil {
		errs = append(errs, errors.New("Own: is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return &DB{
		dialect: cfg.Dialect, write: cfg.Write, read: cfg.Read, own: cfg.Own,
		mapper: bun.NewDB(cfg.Own, sqlitedialect.New()),
		wait:   cmp.Or(cfg.Wait, DefaultWait),
	}, nil
}

// Dialect returns the kind of database.
func (db *DB) Dialect() Dialect { return db.dialect }

// Read returns the application's pool for reading. It never waits for a writer.
func (db *DB) Read() *sql.DB { return db.read }

// Own returns Loam's own pool for reading.
func (db *DB) Own() *sql.DB { return db.own }

// Write returns the pool for writing, for what brings its own transactions (River, the migrator). On SQLite it is one
// connection: whoever begins a transaction on it and then calls the engine without passing that transaction waits for
// itself. Use InTx.
func (db *DB) Write() *sql.DB { return db.write }

// Mapper returns bun over Loam's own pool for reading. Its ScanRows maps rows of any query to structs.
func (db *DB) Mapper() *bun.DB { return db.mapper }

// Close closes all pools. Stop the engine first.
func (db *DB) Close() error {
	return errors.Join(db.write.Close(), db.read.Close(), db.own.Close())
}

// ByID is the condition that a row of alias d is one of a tenant's with the ids of a List: parameters n and m. It makes the
// database find the rows by their ids: without statistics, SQLite would rather read all rows of the tenant.
func ByID(n, m int) string {
	return fmt.Sprintf("+d.tenant_id = $%d AND ", n) + AnyOf("d.id", m)
}

// AnyOf is the condition that column is one of the values of a List bound as parameter n.
func AnyOf(column string, n int) string {
	return fmt.Sprintf("%s IN (SELECT value FROM json_each($%d))", column, n)
}

// List makes one bound parameter of ids, for AnyOf. A list without ids matches nothing.
func List(ids []string) string {
	if len(ids) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(ids) // a []string always encodes
	return string(text)
}
