package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/pgserver"
)

// What is wrong with a place is said when it is opened, in words, and without the password.
func TestWhatCannotBeOpened(t *testing.T) {
	t.Parallel()
	fresh := dbtest.Fresh(t, database.PostgreSQL).At
	with := func(change func(*url.URL)) string {
		u, err := url.Parse(fresh)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct {
		url  string
		want error
		says string
	}{
		"nothing listens":  {with(func(u *url.URL) { u.Host = "127.0.0.1:1"; u.User = url.UserPassword("loam", "s3cret") }), database.ErrUnreachable, "127.0.0.1:1"},
		"no such database": {with(func(u *url.URL) { u.Path = "/nowhere"; u.User = url.UserPassword("loam", "s3cret") }), database.ErrRefused, `"nowhere"`},
		"no such user":     {with(func(u *url.URL) { u.User = url.UserPassword("nobody", "s3cret") }), database.ErrRefused, `"nobody"`},
		"a standby":        {with(func(u *url.URL) { u.RawQuery = "default_transaction_read_only=on" }), database.ErrReadOnly, "read-only"},
		"no URL":           {"", nil, "URL: is empty"},
		"nonsense":         {"postgres://u:s3cret@%zz/x", nil, "URL: "},
	} {
		db, err := postgres.Open(t.Context(), c.url)
		if err == nil {
			_ = db.Close()
			t.Errorf("%s: it was opened", name)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.want, c.says)
		}
	}
	if _, err := postgres.OpenConfig(t.Context(), postgres.Config{URL: fresh, MaxConns: -1}); err == nil || !strings.Contains(err.Error(), "MaxConns: ") {
		t.Errorf("MaxConns -1: %v", err)
	}
}

// The application's pool for reading cannot write, and what the application holds open does not keep Loam's own pool busy.
func TestPools(t *testing.T) {
	t.Parallel()
	db, err := postgres.OpenConfig(t.Context(), postgres.Config{URL: dbtest.Fresh(t, database.PostgreSQL).At, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	if _, err := db.Read().ExecContext(t.Context(), `CREATE TABLE x (y int)`); !errors.Is(database.Explain(err), database.ErrReadOnly) {
		t.Errorf("the pool for reading writes: %v", err)
	}
	for range 2 {
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // it wrote nothing
	}
	limited, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.InTx(limited, func(context.Context, *sql.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a full pool: %v", err)
	}
	if err := db.InTxFirst(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE first (y int)`)
		return err
	}); err != nil {
		t.Errorf("what goes first waits for the application: %v", err)
	}
}

// A pool that the application has is used as it is, and left open; one that would not do is refused with the reason.
func TestFrom(t *testing.T) {
	t.Parallel()
	at := dbtest.Fresh(t, database.PostgreSQL).At
	pool, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	db, err := postgres.From(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if db.Write() != pool {
		t.Error("it writes on another pool")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := pool.PingContext(t.Context()); err != nil {
		t.Errorf("the application's pool was closed: %v", err)
	}
	pool.SetMaxOpenConns(1)
	if _, err := postgres.From(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns(10)") {
		t.Errorf("one connection: %v", err)
	}
	if _, err := postgres.From(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("nil: %v", err)
	}
	other, err := sql.Open("sqlite", t.TempDir()+"/x.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	if _, err := postgres.From(t.Context(), other); err == nil || !strings.Contains(err.Error(), `sql.Open("pgx", url)`) {
		t.Errorf("another driver: %v", err)
	}
}

// A server that goes away and comes back is found again, at once and by every pool; meanwhile the error says so.
// scenario: B074
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	s := pgserver.Start(t)
	db, err := postgres.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
	write := func() error {
		return db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS x (y int)`)
			return err
		})
	}
	for range 3 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		s.Down()
		if err := write(); !errors.Is(err, database.ErrUnreachable) || !database.Unavailable(err) {
			t.Errorf("no server: %v", err)
		}
		s.Up()
		if err := write(); err != nil {
			t.Errorf("the server is back: %v", err)
		}
		if _, err := db.Clock(t.Context()); err != nil {
			t.Errorf("the server is back, for Loam's own pool: %v", err)
		}
	}
}

// A pooler in transaction mode is refused with the reason; in session mode it works.
func TestPooler(t *testing.T) {
	t.Parallel()
	target, err := url.Parse(dbtest.Fresh(t, database.PostgreSQL).At)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]error{"transaction": postgres.ErrPooler, "session": nil} {
		db, err := postgres.Open(t.Context(), pooler(t, mode, target))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", mode, err, want)
		}
		if err == nil {
			closeDB(t, db)
		}
	}
}
