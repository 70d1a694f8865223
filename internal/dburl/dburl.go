// Package dburl opens the database that a text names, of either kind, as commands and examples take it from their users.
//
// postgres://… and postgresql://… are PostgreSQL. sqlite:PATH and a plain path are SQLite. No error and no name has a
// password in it.
package dburl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
)

// Env is the environment variable that names the database of a program.
const Env = "LOAM_DATABASE_URL"

// Allowed says what a text may be.
const Allowed = "postgres://USER@HOST:PORT/DATABASE is PostgreSQL, sqlite:PATH or a plain path is SQLite"

// Place is where a database is.
type Place struct {
	// Dialect is the kind of database.
	Dialect database.Dialect
	at      string
	name    string
}

// scheme is what a URL begins with. One letter is a drive of Windows.
var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+):`)

// keywords are libpq's other form, which is as good for PostgreSQL but looks like a path.
var keywords = regexp.MustCompile(`^\s*[a-z_]+\s*=`)

// Parse tells what a text names. It does no I/O.
func Parse(text string) (Place, error) {
	found := scheme.FindStringSubmatch(text)
	switch {
	case text == "":
		return Place{}, fmt.Errorf("is empty; %s", Allowed)
	case found == nil && keywords.MatchString(text):
		return Place{}, fmt.Errorf("is a list of key=value, write it as a URL; %s", Allowed)
	case found == nil:
		return SQLite(text), nil
	}
	switch strings.ToLower(found[1]) {
	case "postgres", "postgresql":
		return PostgreSQL(text)
	case "sqlite":
		path := text[len(found[0]):]
		if path == "" || strings.HasPrefix(path, "//") {
			return Place{}, errors.New("after sqlite: the path of a file must follow, without //: sqlite:app.db, sqlite:/var/lib/app.db")
		}
		return SQLite(path), nil
	}
	return Place{}, fmt.Errorf("begins with %q, which is not known; %s", found[0], Allowed)
}

// FromEnv tells what Env names.
func FromEnv() (Place, error) {
	p, err := Parse(os.Getenv(Env))
	if err != nil {
		return Place{}, fmt.Errorf("%s: %w", Env, err)
	}
	return p, nil
}

// SQLite is the place of a file, whatever its path looks like.
func SQLite(path string) Place { return Place{database.SQLite, path, path} }

// PostgreSQL is the place that a URL of PostgreSQL's names.
func PostgreSQL(text string) (Place, error) {
	found := scheme.FindStringSubmatch(text)
	if found == nil || !strings.HasPrefix(text[len(found[0]):], "//") ||
		strings.ToLower(found[1]) != "postgres" && strings.ToLower(found[1]) != "postgresql" {
		return Place{}, errors.New("must begin with postgres:// or postgresql://")
	}
	u, err := url.Parse(text)
	// A bare @, /, ? or # in a password makes it part of the host or of the path for one parser or the other, and those are
	// printed. The parser's error has the password too.
	if err != nil || u.Fragment != "" || strings.Count(text, "@") > 1 || strings.Contains(text, "@") && u.User == nil {
		return Place{}, errors.New("is not a URL: the form is postgres://USER:PASSWORD@HOST:PORT/DATABASE, and in the user's name " +
			"and the password whatever is no letter, digit, -, _, . or ~ is written as % and two hexadecimal digits")
	}
	name := url.URL{Scheme: "postgres", Host: u.Host, Path: u.Path}
	if user := u.User.Username(); user != "" {
		name.User = url.User(user)
	}
	return Place{database.PostgreSQL, "postgres" + text[len(found[1]):], name.String()}, nil // pgx wants small letters
}

// String names the place, without the password.
func (p Place) String() string { return p.name }

// Named returns another database on the server of p. p must be PostgreSQL.
func (p Place) Named(database string) (Place, error) {
	u, err := url.Parse(p.at)
	if err != nil {
		return Place{}, errors.New("is not a URL") // it was one
	}
	u.Path = "/" + database
	query := u.Query()
	query.Del("dbname") // it would win
	query.Del("database")
	u.RawQuery = query.Encode()
	return PostgreSQL(u.String())
}

// Open opens the database. The caller closes it.
func (p Place) Open(ctx context.Context) (*database.DB, error) {
	if p.Dialect == database.PostgreSQL {
		return postgres.Open(ctx, p.at)
	}
	return sqlite.Open(ctx, p.at)
}
