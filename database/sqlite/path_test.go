package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
)

// write opens path and writes to it, and returns how many writes it holds.
func write(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Errorf("%q: %v", path, err)
		return 0
	}
	defer closeDB(t, db)
	err = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS writes (x TEXT); INSERT INTO writes VALUES ('x')`)
		return err
	})
	if err != nil {
		t.Errorf("%q: write: %v", path, err)
	}
	if err := db.Read().QueryRowContext(t.Context(), `SELECT count(*) FROM writes`).Scan(&n); err != nil {
		t.Errorf("%q: read: %v", path, err)
	}
	return n
}

func closeDB(t *testing.T, db *database.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// entries lists a directory.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// Whatever characters a path has, the file that is opened is the one of exactly that name, with the settings it should have,
// and no other file appears.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"app.db", "a b.db", "100%.db", "50%41.db", "%2e%2e%2fup.db", "what?.db", "?", "a?mode=ro&x=y.db", "a#b.db", "#", "a&b=c.db", "a+b.db",
		"é 日本 😀.db", `'quoted" .db`, "semi;colon.db", `back\slash.db`, "new\nline.db", "[x]{y}|z.db", "a:b.db", "memory", "-x", "no extension", "%00.db", "a@b.db",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		for want := 1; want <= 2; want++ { // the second time the file is there
			if n := write(t, path); n != want {
				t.Errorf("%q: opened %d times, it has %d writes", name, want, n)
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		for _, e := range entries(t, dir) {
			if !strings.HasPrefix(e, name) {
				t.Errorf("%q: the file %q appeared", name, e)
			}
		}
	}
}

// Odd directories, and the ways in which a shell or a program joins paths.
func TestOddDirectories(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "50% of ?#&", "ü")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{
		filepath.Join(dir, "app.db"),
		relative + "/app.db",
		"./" + relative + "/app.db",
		dir + "//app.db",
		dir + "/../ü/./app.db",
		"/" + dir + "/app.db", // as "/" + "/data/app.db" gives it
	} {
		if n := write(t, path); n != i+1 {
			t.Errorf("%q: it has %d writes, want %d: another file", path, n, i+1)
		}
	}
	if got := entries(t, dir); len(got) != 1 {
		t.Errorf("the directory has %q", got)
	}
}
