package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dburl"
)

// dropLimit is the time limit of taking the database away, also after Ctrl-C.
const dropLimit = 10 * time.Second

// target says where the fresh database is to be. Every subcommand has its flags.
type target struct{ kind, url string }

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.kind, "database", string(database.SQLite), "the `kind`: sqlite or postgres")
	cmd.Flags().StringVar(&t.url, "url", "", "a database `URL` on the PostgreSQL server where the fresh one is made (default: "+dburl.Env+")")
}

// fresh opens a new database. drop closes it and takes it away.
func (t *target) fresh(ctx context.Context) (db *database.DB, drop func() error, err error) {
	switch t.kind {
	case string(database.SQLite):
		if t.url != "" {
			return nil, nil, errors.New("--url is for --database postgres; SQLite is measured on a temporary file")
		}
		return freshFile(ctx)
	case string(database.PostgreSQL):
		return t.freshDatabase(ctx)
	}
	return nil, nil, fmt.Errorf("--database: %q is not known, it must be sqlite or postgres", t.kind)
}

func freshFile(ctx context.Context) (*database.DB, func() error, error) {
	dir, err := os.MkdirTemp("", "loam-bench-")
	if err != nil {
		return nil, nil, err
	}
	db, err := dburl.SQLite(filepath.Join(dir, "bench.db")).Open(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return db, func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) }, nil
}

// server is the database that the server is reached by.
func (t *target) server() (dburl.Place, error) {
	if t.url != "" {
		p, err := dburl.PostgreSQL(t.url)
		if err != nil {
			err = fmt.Errorf("--url: %w", err)
		}
		return p, err
	}
	p, err := dburl.FromEnv()
	if err == nil && p.Dialect != database.PostgreSQL {
		err = fmt.Errorf("%s names a file of SQLite", dburl.Env)
	}
	if err != nil {
		err = fmt.Errorf("%w; to measure PostgreSQL give --url postgres://USER@HOST:PORT/DATABASE, or the same in %s: "+
			"a database for the measurement is made beside it and dropped at the end", err, dburl.Env)
	}
	return p, err
}

func (t *target) freshDatabase(ctx context.Context) (*database.DB, func() error, error) {
	server, err := t.server()
	if err != nil {
		return nil, nil, err
	}
	name := "loam_bench_" + strings.ToLower(rand.Text()[:12])
	place, err := server.Named(name)
	if err != nil {
		return nil, nil, err
	}
	if err := do(ctx, server, `CREATE DATABASE `+name); err != nil {
		return nil, nil, fmt.Errorf("make a database for the measurement (the user needs CREATEDB): %w", err)
	}
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
		defer cancel()
		return do(ctx, server, `DROP DATABASE `+name+` WITH (FORCE)`)
	}
	db, err := place.Open(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return db, func() error { return errors.Join(db.Close(), drop()) }, nil
}

// do runs one statement on a server, over connections that are closed again.
func do(ctx context.Context, server dburl.Place, statement string) error {
	db, err := server.Open(ctx)
	if err != nil {
		return err
	}
	_, err = db.Write().ExecContext(ctx, statement)
	return errors.Join(database.Explain(err), db.Close())
}
