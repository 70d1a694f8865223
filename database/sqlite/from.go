package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	modernc "modernc.org/sqlite"

	"github.com/openloam/loam/database"
)

// From makes a DB over a pool that the application has, so that both write on the same connections. The pool must be of
// modernc.org/sqlite, over a file, in write-ahead mode, with a busy timeout, and its transactions must take the write lock
// when they begin; what is missing is named, with the words to add to its data source name. Loam opens eight connections
// more, for reading. The application closes its pool, after the DB.
func From(ctx context.Context, pool *sql.DB) (*database.DB, error) {
	db, err := from(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("sqlite: From: %w", database.Explain(err))
	}
	return db, nil
}

func from(ctx context.Context, pool *sql.DB) (*database.DB, error) {
	if pool == nil {
		return nil, errors.New("the pool is nil")
	}
	if _, ok := pool.Driver().(*modernc.Driver); !ok {
		return nil, fmt.Errorf(`the pool's driver is a %T; open it with modernc.org/sqlite: sql.Open("sqlite", …)`, pool.Driver())
	}
	path, err := checkSettings(ctx, pool)
	if err != nil {
		return nil, err
	}
	db, err := assemble(Config{Path: path, adopted: true}, pool)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkLock(ctx, pool, path), probe(ctx, db)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// checkSettings returns the pool's file.
func checkSettings(ctx context.Context, pool *sql.DB) (path string, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	var mode string
	var timeout int
	if err := errors.Join(
		conn.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path),
		conn.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode),
		conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&timeout),
	); err != nil {
		return "", err
	}
	var errs []error
	if path == "" {
		errs = append(errs, errors.New("the database is in memory, and is not durable; use a file"))
	}
	if mode != "wal" && path != "" {
		errs = append(errs, fmt.Errorf("the journal mode is %q; add _pragma=journal_mode(WAL) to its data source name", mode))
	}
	if timeout < 1000 {
		errs = append(errs, fmt.Errorf("the busy timeout is %d ms; add _pragma=busy_timeout(10000) to its data source name", timeout))
	}
	return path, errors.Join(errs...)
}

// checkLock begins a transaction on the pool, which must keep another from writing.
func checkLock(ctx context.Context, pool *sql.DB, path string) error {
	other, err := openPool(Config{Path: path}, 1, url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(0)"}})
	if err != nil {
		return err
	}
	defer other.Close() //nolint:errcheck // it wrote nothing
	mine, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer mine.Rollback() //nolint:errcheck // it wrote nothing
	theirs, err := other.BeginTx(ctx, nil)
	if err == nil {
		_ = theirs.Rollback()
		return errors.New("its transactions take the write lock only when they first write, and then fail instead of waiting; " +
			"add _txlock=immediate to its data source name")
	}
	if err = database.Explain(err); !errors.Is(err, database.ErrBusy) {
		return err
	}
	return nil
}
