package dburl_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/dburl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		kind database.Dialect
		name string
	}{
		"app.db":                            {database.SQLite, "app.db"},
		"/var/lib/a b.db":                   {database.SQLite, "/var/lib/a b.db"},
		"./odd:name.db":                     {database.SQLite, "./odd:name.db"},
		"dir/user=me.db":                    {database.SQLite, "dir/user=me.db"},
		`C:\loam\app.db`:                    {database.SQLite, `C:\loam\app.db`},
		"sqlite:app.db":                     {database.SQLite, "app.db"},
		"sqlite:/var/lib/app.db":            {database.SQLite, "/var/lib/app.db"},
		"sqlite:odd:name.db":                {database.SQLite, "odd:name.db"},
		"postgres://me@host:5433/app":       {database.PostgreSQL, "postgres://me@host:5433/app"},
		"postgresql://host/app":             {database.PostgreSQL, "postgres://host/app"},
		"Postgres://host/app":               {database.PostgreSQL, "postgres://host/app"},
		"postgres://me:s%65cret@host/app":   {database.PostgreSQL, "postgres://me@host/app"},
		"postgres:///app?host=/tmp&user=me": {database.PostgreSQL, "postgres:///app"},
		"postgres://host/app?user=me&password=secret&sslpassword=secret": {database.PostgreSQL, "postgres://host/app"},
	} {
		p, err := dburl.Parse(text)
		if err != nil || p.Dialect != want.kind || p.String() != want.name {
			t.Errorf("%s: %q %q %v, want %q %q", text, p.Dialect, p, err, want.kind, want.name)
		}
	}
}

// Nonsense is refused with what is allowed, and never with a password.
func TestParseNonsense(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ //nolint:gosec // nobody's passwords
		"":                                   "is empty; " + dburl.Allowed,
		"mysql://me:secret@host/app":         `begins with "mysql:", which is not known; ` + dburl.Allowed,
		"file:app.db?secret":                 `begins with "file:"`,
		"host=h password=secret":             "is a list of key=value",
		" dbname = app":                      "is a list of key=value",
		"sqlite:":                            "the path of a file must follow",
		"sqlite://app.db":                    "without //",
		"postgres:app":                       "must begin with postgres://",
		"postgres://me:sec%ret@host/app":     "% and two hexadecimal digits",
		"postgres://me:se/cret@host/app":     "% and two hexadecimal digits",
		"postgres://me:12/secret@host/app":   "% and two hexadecimal digits",
		"postgres://me:12?secret@host/app":   "% and two hexadecimal digits",
		"postgres://me:12#secret@host/app":   "% and two hexadecimal digits",
		"postgres://me:se@cret@host/app":     "% and two hexadecimal digits",
		"postgres://me:secret@host/app#x":    "% and two hexadecimal digits",
		"postgres://me:secret@host:port/app": "% and two hexadecimal digits",
		"postgres://me:secret@ho st/app\x7f": "% and two hexadecimal digits",
		"postgresql://me:secret@[::1/app":    "% and two hexadecimal digits",
	} {
		_, err := dburl.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want %q without the password", text, err, want)
		}
	}
}

// No error of opening has the password either.
func TestOpenSaysNoPassword(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"postgres://me:secret@127.0.0.1:1/app",
		"postgres://127.0.0.1:1/app?user=me&password=secret&sslmode=nonsense",
		"postgres://me:secret@127.0.0.1:1/app?connect_timeout=soon",
	} {
		p, err := dburl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Open(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// open opens the database until the end of the test.
func open(t *testing.T, p dburl.Place) *database.DB {
	t.Helper()
	db, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			p, err := dburl.Parse(dbtest.Empty(t, kind).At)
			if err != nil {
				t.Fatal(err)
			}
			db := open(t, p)
			if db.Dialect() != kind || p.Dialect != kind {
				t.Errorf("it is %q, and said to be %q", db.Dialect(), p.Dialect)
			}
		})
	}
}

// Named keeps everything but the database.
func TestNamed(t *testing.T) {
	t.Parallel()
	p, err := dburl.Parse(dbtest.Empty(t, database.PostgreSQL).At + "?application_name=test&dbname=nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if p, err = p.Named("postgres"); err != nil {
		t.Fatal(err)
	}
	db := open(t, p)
	var name, application string
	if err := db.Own().QueryRowContext(t.Context(), `SELECT current_database(), current_setting('application_name')`).Scan(&name, &application); err != nil ||
		name != "postgres" || application != "test" {
		t.Errorf("database %q of application %q, %v", name, application, err)
	}
}

// contract: J-04. One variable is enough to choose the kind of database.
func TestFromEnv(t *testing.T) {
	t.Setenv(dburl.Env, "")
	if _, err := dburl.FromEnv(); err == nil || !strings.HasPrefix(err.Error(), "LOAM_DATABASE_URL: is empty; ") {
		t.Errorf("an empty variable: %v", err)
	}
	path := filepath.Join(t.TempDir(), "app.db")
	t.Setenv(dburl.Env, "sqlite:"+path)
	if p, err := dburl.FromEnv(); err != nil || p.Dialect != database.SQLite || p.String() != path {
		t.Errorf("%v, %v", p, err)
	}
}
