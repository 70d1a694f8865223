// Package postgres opens a PostgreSQL database for Loam, through pgx and database/sql: bun, River and the application
// share one *sql.Tx. A transaction of pgx's own type is not supported.
//
// A process has four pools: one that writes, for the application and Loam together; one of read-only sessions, for the
// application; one of Loam's own, for its reading and for renewing claims, so that what the application holds open does not
// stop deliveries; and two connections that listen for notices, for River and for the relay, while an engine works.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/openloam/loam/database"
)

// DefaultMaxConns is how many connections the pool that writes has at most.
const DefaultMaxConns = 10

const (
	readConns = 4
	ownConns  = 4
	// connectLimit is the time limit of making a connection whose URL names none.
	connectLimit = 5 * time.Second
)

// Config says what to open and how.
type Config struct {
	// URL is a PostgreSQL URL or key=value string, as libpq has them; what it lacks is taken from the PG environment
	// variables. Required.
	URL string
	// MaxConns is how many connections the pool that writes has at most; Loam has ten more. Defaults to DefaultMaxConns.
	MaxConns int
	// Wait is how long a call waits for a connection. Defaults to database.DefaultWait.
	Wait time.Duration
	// Wrap, if set, wraps what makes the connections: for tracing, or for tests that inject faults. The wrapper must pass
	// on the optional interfaces of the connections.
	Wrap func(driver.Connector) driver.Connector
}

// Open opens the database at url with the default settings. See OpenConfig.
func Open(ctx context.Context, url string) (*database.DB, error) {
	return OpenConfig(ctx, Config{URL: url})
}

// OpenConfig opens a database. The error says whether the server cannot be reached (database.ErrUnreachable), has no
// connection left (database.ErrTooMany), does not let the user in or lacks the database (database.ErrRefused), or is read-only
// (database.ErrReadOnly). A connection through a pooler in transaction mode is refused (ErrPooler). The caller closes the DB.
func OpenConfig(ctx context.Context, cfg Config) (*database.DB, error) {
	if cfg.URL == "" {
		return nil, errors.New("postgres: URL: is empty")
	}
	if cfg.MaxConns < 0 {
		return nil, fmt.Errorf("postgres: MaxConns: is %d, it must be positive, or 0 for %d", cfg.MaxConns, DefaultMaxConns)
	}
	conn, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: URL: %w", err) // pgx leaves the password out
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "loam"
	}
	db, err := assemble(cfg, conn, nil) //nolint:contextcheck // the pools outlive the call
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := probe(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: open %s: %w", place(conn), database.Explain(err)), db.Close())
	}
	return db, nil
}

// place names the server without the password.
func place(conn *pgx.ConnConfig) string {
	return fmt.Sprintf("database %q on %s:%d as %q", conn.Database, conn.Host, conn.Port, conn.User)
}

// assemble makes the pools. write, if not nil, is the application's.
func assemble(cfg Config, conn *pgx.ConnConfig, write *sql.DB) (*database.DB, error) {
	conn.ConnectTimeout = cmp.Or(conn.ConnectTimeout, connectLimit)
	adopted := write != nil
	if !adopted {
		write = pool(cfg, conn, cmp.Or(cfg.MaxConns, DefaultMaxConns))
	}
	read := pool(cfg, conn, readConns, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET default_transaction_read_only = on`)
		return err
	}))
	own := pool(cfg, conn, ownConns)
	listen, err := pgxpool.ParseConfig("")
	if err == nil {
		listen.ConnConfig, listen.MaxConns, listen.MinConns = conn.Copy(), 2, 0
	}
	var listeners *pgxpool.Pool
	if err == nil {
		listeners, err = pgxpool.NewWithConfig(context.Background(), listen) //nolint:forbidigo // the life of the pool, not of a call
	}
	if err != nil {
		return nil, errors.Join(err, read.Close(), own.Close())
	}
	return database.New(database.Config{
		Dialect: database.PostgreSQL, Write: write, Adopted: adopted, Read: read, Own: own, Listen: listeners, Wait: cfg.Wait,
	})
}

func pool(cfg Config, conn *pgx.ConnConfig, conns int, opts ...stdlib.OptionOpenDB) *sql.DB {
	connector := stdlib.GetConnector(*conn, opts...)
	if cfg.Wrap != nil {
		connector = cfg.Wrap(connector)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}
