// Package migrations embeds the schema, and River's, and applies it.
//
// A migration is a file NNNN_name.sql; the table loam_migrations has the ones that were applied. They run forward only.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/txmark"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// ErrNotMigrated is returned by Check for a database that lacks migrations of this build.
var ErrNotMigrated = errors.New("the database has not been migrated: call Engine.Migrate, or run loam migrate")

// Result says what Migrate did.
type Result struct {
	// Applied has the names of the migrations that were applied now, in order, River's as "river N".
	Applied []string
}

type migration struct {
	version int
	name    string
	text    string
}

// Migrate brings the database to this build's schema, River's tables included. Several processes may call it at once: each
// migration is applied once. One that is killed in the middle leaves nothing half done and blocks nobody. It returns what
// this call applied, which is nothing when all was there.
//
// On SQLite all of it is one transaction. On PostgreSQL a session's advisory lock keeps the others waiting, and each
// migration is a transaction.
func Migrate(ctx context.Context, db *database.DB, now time.Time) (Result, error) {
	if db.InTransaction(ctx) {
		return Result{}, fmt.Errorf("migrate: %w", txmark.ErrInTransaction)
	}
	all, err := load(db.Dialect())
	if err != nil {
		return Result{}, err
	}
	m := migrator{db: db, now: now, all: all}
	if m.river, err = riverMigrator(db.Dialect(), db.Write()); err != nil {
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	apply := m.sqlite
	if db.Dialect() == database.PostgreSQL {
		apply = m.postgres
	}
	if err := retry(ctx, func() error { return apply(ctx) }); err != nil {
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	return Result{Applied: m.applied}, nil
}

func riverMigrator(dialect database.Dialect, pool *sql.DB) (*rivermigrate.Migrator[*sql.Tx], error) {
	var driver riverdriver.Driver[*sql.Tx] = riversqlite.New(pool)
	if dialect == database.PostgreSQL {
		driver = riverdatabasesql.New(pool)
	}
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("River: %w", err)
	}
	return m, nil
}

// Pending returns the names of the migrations of this build that the database lacks. It writes nothing.
func Pending(ctx context.Context, db *database.DB) ([]string, error) {
	all, err := load(db.Dialect())
	if err != nil {
		return nil, err
	}
	find := `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'loam_migrations'`
	if db.Dialect() == database.PostgreSQL {
		find = `SELECT count(to_regclass('loam_migrations'))`
	}
	var tables, newest int
	err = db.Own().QueryRowContext(ctx, find).Scan(&tables)
	if err == nil && tables > 0 {
		newest, err = version(ctx, db.Own())
	}
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", database.Explain(err))
	}
	var names []string
	for _, m := range all {
		if m.version > newest {
			names = append(names, m.name)
		}
	}
	river, err := riverMigrator(db.Dialect(), db.Own())
	if err != nil {
		return nil, err
	}
	valid, err := river.Validate(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read the version of River's schema: %w", database.Explain(err))
	}
	if !valid.OK {
		names = append(names, "river")
	}
	return names, nil
}

// Check returns an error that wraps ErrNotMigrated if the database lacks migrations of this build. It writes nothing.
func Check(ctx context.Context, db *database.DB) error {
	names, err := Pending(ctx, db)
	if err == nil && len(names) > 0 {
		return fmt.Errorf("%w (it lacks %s)", ErrNotMigrated, strings.Join(names, ", "))
	}
	return err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func version(ctx context.Context, q querier) (int, error) {
	var v int
	err := q.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM loam_migrations`).Scan(&v)
	return v, err
}

func load(dialect database.Dialect) ([]migration, error) {
	dir := string(dialect) + "/"
	names, err := fs.Glob(files, dir+"*.sql") // in ascending order
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names))
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, dir), ".sql")
		number, _, _ := strings.Cut(name, "_")
		v, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migrations: %s has no number", file)
		}
		text, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, migration{v, name, string(text)})
	}
	return all, nil
}
