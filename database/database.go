// Package database is the handle that the rest of Loam works with, and the one place that knows how SQLite and
// PostgreSQL differ.
//
// Open one with database/sqlite or database/postgres. A DB is safe for use by several goroutines.
//
// Statements are written with numbered parameters ($1, $2) and bind their arguments. A list of ids is bound as one
// parameter, see Dialect.AnyOf and List.
package database

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
)

// DefaultWait is how long a call waits for a write connection before it says what is likely wrong.
const DefaultWait = 10 * time.Second

// Config is what New needs. Applications do not call New: they open a database with database/sqlite or database/postgres.
type Config struct {
	// Dialect is the kind of database. Required.
	Dialect Dialect
	// Write is the pool for transactions that write: on SQLite one connection, whose transactions take the write lock
	// when they begin. Required.
	Write *sql.DB
	// Adopted says that Write is the application's, who closes it.
	Adopted bool
	// Read is a pool for the application's reading. Required.
	Read *sql.DB
	// Own is a pool for Loam's own reading, so that what the application holds open does not stop deliveries. On PostgreSQL
	// claims are also renewed on it. Required.
	Own *sql.DB
	// Listen makes the connections that listen for notices. For PostgreSQL only, and required there.
	Listen *pgxpool.Pool
	// Wait is how long InTx waits for a write connection. Defaults to DefaultWait.
	Wait time.Duration
}

// DB is an open database.
type DB struct {
	dialect Dialect
	write   *sql.DB
	adopted bool
	read    *sql.DB
	own     *sql.DB
	listen  *pgxpool.Pool
	mapper  *bun.DB
	gate    gate
	wait    time.Duration
}

// New makes a DB of open pools. It does no I/O.
func New(cfg Config) (*DB, error) {
	var errs []error
	var mapping schema.Dialect
	switch cfg.Dialect {
	case SQLite:
		mapping = sqlitedialect.New()
	case PostgreSQL:
		mapping = pgdialect.New()
		if cfg.Listen == nil {
			errs = append(errs, errors.New("Listen: is nil"))
		}
	default:
		errs = append(errs, fmt.Errorf("Dialect: %q is not known, it must be %q or %q", cfg.Dialect, SQLite, PostgreSQL))
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
		dialect: cfg.Dialect, write: cfg.Write, adopted: cfg.Adopted, read: cfg.Read, own: cfg.Own, listen: cfg.Listen,
		mapper: bun.NewDB(cfg.Own, mapping),
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

// Listen returns what makes the connections that listen for notices; nil on SQLite.
func (db *DB) Listen() *pgxpool.Pool { return db.listen }

// Close closes all pools, but not one that the application handed over. Stop the engine first.
func (db *DB) Close() error {
	if db.listen != nil {
		db.listen.Close()
	}
	err := errors.Join(db.read.Close(), db.own.Close())
	if !db.adopted {
		err = errors.Join(db.write.Close(), err)
	}
	return err
}
