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

	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/openloam/loam/database"
)

//go:embed sqlite/*.sql
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

// Migrate brings the database to this build's schema, River's tables included. On SQLite all of it is one transaction,
// so that a process killed in the middle leaves nothing, and several at once apply each migration once. It returns what
// it applied, which is nothing when all was there.
func Migrate(ctx context.Context, db *database.DB, now time.Time) (Result, error) {
	all, err := load()
	if err != nil {
		return Result{}, err
	}
	river, err := riverMigrator(db.Write())
	if err != nil {
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	var res Result
	err = retry(ctx, func() error {
		return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			res = Result{}
			applied, err := river.MigrateTx(ctx, tx, rivermigrate.DirectionUp, nil) //nolint:staticcheck // Migrate would wait for the one connection that this transaction holds
			if err != nil {
				return fmt.Errorf("River: %w", err)
			}
			for _, v := range applied.Versions {
				res.Applied = append(res.Applied, "river "+strconv.Itoa(v.Version))
			}
			if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS loam_migrations (
			version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)`); err != nil {
				return err
			}
			newest, err := version(ctx, tx)
			if err != nil {
				return err
			}
			for _, m := range all {
				if m.version <= newest {
					continue
				}
				if _, err := tx.ExecContext(ctx, m.text); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO loam_migrations (version, name, applied_at) VALUES ($1, $2, $3)`,
					m.version, m.name, database.At(now)); err != nil {
					return err
				}
				res.Applied = append(res.Applied, m.name)
			}
			return nil
		})
	})
	if err != nil {
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	return res, nil
}

func riverMigrator(pool *sql.DB) (*rivermigrate.Migrator[*sql.Tx], error) {
	m, err := rivermigrate.New(riversqlite.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("River: %w", err)
	}
	return m, nil
}

// Pending returns the names of the migrations of this build that the database lacks. It writes nothing.
func Pending(ctx context.Context, db *database.DB) ([]string, error) {
	all, err := load()
	if err != nil {
		return nil, err
	}
	var tables, newest int
	err = db.Own().QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'loam_migrations'`).Scan(&tables)
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
	river, err := riverMigrator(db.Own())
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

func load() ([]migration, error) {
	names, err := fs.Glob(files, "sqlite/*.sql") // in ascending order
	if err != nil {
		return nil, err
	}
	all := make([]migration, 0, len(names))
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "sqlite/"), ".sql")
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
