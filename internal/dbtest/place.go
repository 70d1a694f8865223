package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // makes and drops databases

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/migrations"
)

// URLEnv has the URL of a PostgreSQL server for tests.
const URLEnv = "LOAM_TEST_POSTGRES"

// Place says where a database is: a file of SQLite's, or a URL of PostgreSQL's.
type Place struct {
	Dialect database.Dialect
	At      string
}

// places has the place of every open database.
var places sync.Map

// PlaceOf returns where a database is that this package opened.
func PlaceOf(t testing.TB, db *database.DB) Place {
	t.Helper()
	p, ok := places.Load(db)
	if !ok {
		t.Fatal("the database was not opened by dbtest")
	}
	return p.(Place)
}

func (p Place) open(ctx context.Context, faults *Faults) (*database.DB, error) {
	if p.Dialect == database.PostgreSQL {
		return postgres.OpenConfig(ctx, postgres.Config{URL: p.At, Wait: wait, Wrap: faults.Wrap})
	}
	return sqlite.OpenConfig(ctx, sqlite.Config{Path: p.At, Wait: wait, Wrap: faults.Wrap})
}

// Connect opens the database at a place, as it is there. The caller closes it.
func Connect(p Place) (*database.DB, *Faults, error) {
	faults := &Faults{}
	db, err := p.open(context.Background(), faults)
	return db, faults, err
}

// Fresh makes a place for a database that is not there yet. A test of PostgreSQL without a server is skipped.
func Fresh(t testing.TB, kind database.Dialect) Place {
	t.Helper()
	if kind == database.SQLite {
		return Place{kind, filepath.Join(t.TempDir(), "test.db")}
	}
	return Place{kind, create(t, "TEMPLATE "+template(t))}
}

// Empty is Fresh, but a database of PostgreSQL has no table.
func Empty(t testing.TB, kind database.Dialect) Place {
	t.Helper()
	if kind == database.SQLite {
		return Fresh(t, kind)
	}
	return Place{kind, create(t, "")}
}

// Copy makes a database that is as the one at a place, which nobody has open, and returns where it is.
func Copy(t testing.TB, from Place) Place {
	t.Helper()
	if from.Dialect == database.PostgreSQL {
		_, name, _ := strings.Cut(strings.TrimPrefix(from.At, "postgres://"), "/")
		return Place{from.Dialect, create(t, "TEMPLATE "+name)}
	}
	to := Fresh(t, database.SQLite)
	content, err := os.ReadFile(from.At)
	if err == nil {
		err = os.WriteFile(to.At, content, 0o600) //nolint:gosec // a place of the test's
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Server returns the URL of the test server. A test of PostgreSQL without one is skipped.
func Server(t testing.TB) string {
	t.Helper()
	return server(t, "")
}

// server returns the test server's URL, with another database.
func server(t testing.TB, name string) string {
	t.Helper()
	base := os.Getenv(URLEnv)
	if base == "" {
		t.Skipf("PostgreSQL is not tested: run make postgres, and set %s as it says", URLEnv)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("%s: %v", URLEnv, err)
	}
	if name != "" {
		u.Path = "/" + name
	}
	return u.String()
}

// create makes a database that is dropped at the end of the test, and returns its URL.
func create(t testing.TB, with string) string {
	t.Helper()
	name := "loam_" + strings.ToLower(rand.Text())
	admin(t, `CREATE DATABASE `+name+" "+with)
	t.Cleanup(func() { admin(t, `DROP DATABASE `+name+` WITH (FORCE)`) })
	return server(t, name)
}

// admin runs a statement on the server. Two that copy one template at once get in each other's way, and are repeated.
func admin(t testing.TB, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("pgx", server(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for {
		_, err := db.ExecContext(ctx, statement)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "55006") { // being accessed by other users
			t.Fatalf("%s: %v", statement, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var (
	templateOnce sync.Once
	templateName string
	errTemplate  error
)

// template is a migrated database, made once for each test process: to copy it is five times as fast as to migrate.
func template(t testing.TB) string {
	t.Helper()
	server(t, "") // skips
	templateOnce.Do(func() {
		templateName = fmt.Sprintf("loam_template_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
		admin(t, `CREATE DATABASE `+templateName)
		var db *database.DB
		if db, errTemplate = postgres.Open(context.Background(), server(t, templateName)); errTemplate != nil {
			return
		}
		_, errTemplate = migrations.Migrate(context.Background(), db, time.Now())
		_ = db.Close()
	})
	if errTemplate != nil {
		t.Fatal(errTemplate)
	}
	return templateName
}
