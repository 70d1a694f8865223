package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/openloam/loam/database"
)

// From makes a DB over a pool that the application has, so that both write on the same connections. The pool must be of
// pgx's driver ("pgx"), with two connections at least. Loam opens ten more with the same settings. The application closes
// its pool, after the DB.
func From(ctx context.Context, pool *sql.DB) (*database.DB, error) {
	if pool == nil {
		return nil, errors.New("postgres: From: the pool is nil")
	}
	if n := pool.Stats().MaxOpenConnections; n == 1 {
		return nil, errors.New("postgres: From: the pool has one connection, and needs two at least: db.SetMaxOpenConns(10)")
	}
	conn, err := configOf(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("postgres: From: %w", database.Explain(err))
	}
	db, err := assemble(Config{}, conn, pool) //nolint:contextcheck // the pools outlive the call
	if err != nil {
		return nil, fmt.Errorf("postgres: From: %w", err)
	}
	if err := probe(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: From: %s: %w", place(conn), database.Explain(err)), db.Close())
	}
	return db, nil
}

// configOf is how the pool makes its connections.
func configOf(ctx context.Context, pool *sql.DB) (*pgx.ConnConfig, error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var cfg *pgx.ConnConfig
	err = c.Raw(func(inner any) error {
		own, ok := unwrap(inner).(*stdlib.Conn)
		if !ok {
			return fmt.Errorf(`the pool's driver makes a %T; open it with pgx: sql.Open("pgx", url)`, inner)
		}
		cfg = own.Conn().Config()
		return nil
	})
	return cfg, err
}

// unwrap takes the wrappers off a driver's connection.
func unwrap(conn any) any {
	for {
		w, ok := conn.(interface{ Unwrap() any })
		if !ok {
			return conn
		}
		conn = w.Unwrap()
	}
}
