// Package sqlite opens a SQLite database for Loam.
//
// One connection writes; four read for the application, and four for Loam. Transactions that write take the write lock when they begin, and wait up to ten
// seconds for another process. The journal is a write-ahead log. These settings are the ones that gave no "database is
// locked" under sixteen writers and two processes (docs/adr/0002).
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/openloam/loam/database"
)

// Sync says when a commit is on the disk.
type Sync string

const (
	// SyncNormal survives a crash of the process or of the system's kernel without damage; a loss of power may undo the
	// last commits, as a whole and in order.
	SyncNormal Sync = "NORMAL"
	// SyncFull waits for the disk in every commit, so that what was committed also survives a loss of power.
	SyncFull Sync = "FULL"
)

// Config says what to open and how.
type Config struct {
	// Path is the database file; it is created if it is missing, its directory is not. Required.
	Path string
	// Sync says when a commit is on the disk. Defaults to SyncNormal.
	Sync Sync
	// Wait is how long a call waits for the write connection. Defaults to database.DefaultWait.
	Wait time.Duration
	// Wrap, if set, wraps what makes the connections: for tracing, or for tests that inject faults. The wrapper must pass
	// on the optional interfaces of the connections.
	Wrap func(driver.Connector) driver.Connector

	adopted bool // the pool that writes is the application's
}

// Open opens the database file at path with the default settings. See OpenConfig.
func Open(ctx context.Context, path string) (*database.DB, error) {
	return OpenConfig(ctx, Config{Path: path})
}

// OpenConfig opens a database file, and creates it if it is missing. The error says whether the file cannot be opened
// (database.ErrCannotOpen), is read-only (database.ErrReadOnly), is full (database.ErrFull) or is not a database
// (database.ErrNotADatabase). The caller closes the DB.
func OpenConfig(ctx context.Context, cfg Config) (*database.DB, error) {
	if cfg.Sync == "" {
		cfg.Sync = SyncNormal
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	limit := time.Now().Add(cmp.Or(cfg.Wait, database.DefaultWait))
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		db, err := open(ctx, cfg)
		if err == nil {
			return db, nil
		}
		err = fmt.Errorf("sqlite: open %s: %w", cfg.Path, database.Explain(err))
		if !errors.Is(err, database.ErrBusy) || time.Now().After(limit) || !sleep(ctx, wait) {
			return nil, err
		}
	}
}

// Waits between tries to open. Only the first process makes a new file's journal a write-ahead log, and SQLite tells the
// others at once, whatever busy_timeout says, that the file is busy.
const (
	firstWait = 10 * time.Millisecond
	maxWait   = 200 * time.Millisecond
)

// sleep waits, and reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (cfg Config) validate() error {
	var errs []error
	switch {
	case cfg.Path == "":
		errs = append(errs, errors.New("Path: is empty"))
	case strings.Contains(cfg.Path, ":memory:"):
		errs = append(errs, errors.New("Path: a database in memory is not durable, and its connections do not share it; use a temporary file"))
	case strings.HasPrefix(cfg.Path, "file:"):
		errs = append(errs, errors.New("Path: is a URI; give the path of the file alone"))
	case strings.ContainsRune(cfg.Path, 0):
		errs = append(errs, errors.New("Path: contains NUL"))
	}
	if cfg.Sync != SyncNormal && cfg.Sync != SyncFull {
		errs = append(errs, fmt.Errorf("Sync: %q is not known, it must be %q or %q", cfg.Sync, SyncNormal, SyncFull))
	}
	return errors.Join(errs...)
}

func open(ctx context.Context, cfg Config) (*database.DB, error) {
	write, err := openPool(cfg, 1, url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(" + string(cfg.Sync) + ")", "foreign_keys(1)"},
	})
	if err != nil {
		return nil, err
	}
	db, err := assemble(cfg, write)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	if err := probe(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// assemble adds the pools for reading to the one that writes.
func assemble(cfg Config, write *sql.DB) (*database.DB, error) {
	readOnly := url.Values{
		"_txlock": {"deferred"},
		"_pragma": {"busy_timeout(10000)", "query_only(1)", "foreign_keys(1)"},
	}
	read, err := openPool(cfg, 4, readOnly)
	if err != nil {
		return nil, err
	}
	own, err := openPool(cfg, 4, readOnly)
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	db, err := database.New(database.Config{
		Dialect: database.SQLite, Write: write, Adopted: cfg.adopted, Read: read, Own: own, Wait: cfg.Wait,
	})
	if err != nil {
		return nil, errors.Join(err, read.Close(), own.Close())
	}
	return db, nil
}

// openPool makes a pool of connections that stay open: each keeps its settings.
func openPool(cfg Config, conns int, query url.Values) (*sql.DB, error) {
	path := (&url.URL{Path: cfg.Path}).EscapedPath()
	if filepath.IsAbs(cfg.Path) {
		path = "//" + path // an empty authority: else a path that begins with two slashes would have one
	}
	connector, err := modernc.NewConnector("file:" + path + "?" + query.Encode())
	if err != nil {
		return nil, err
	}
	if cfg.Wrap != nil {
		connector = cfg.Wrap(connector)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// errProbed rolls the probe back.
var errProbed = errors.New("probed")

// probe writes once and rolls back: what makes the file unusable shows here, not at the first event. (Only to begin would
// not do: on a read-only file SQLite then quietly begins to read.)
func probe(ctx context.Context, db *database.DB) error {
	err := db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
			return err
		}
		var mode string
		if err := tx.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
			return err
		}
		if mode != "wal" {
			return fmt.Errorf("the journal mode is %q and cannot be changed to a write-ahead log; "+
				"the file system must support shared memory", mode)
		}
		return errProbed
	})
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}
