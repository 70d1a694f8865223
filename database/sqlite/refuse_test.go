package sqlite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
)

// What names no file of its own is refused before anything is touched, and the message starts with the field.
func TestPathsThatAreRefused(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                               "Path: is empty",
		":memory:":                       "Path: a database in memory",
		"file::memory:?cache=shared":     "Path: a database in memory",
		"file:app.db":                    "Path: is a URI",
		"file:///tmp/app.db?mode=memory": "Path: is a URI",
		"a\x00b.db":                      "Path: contains NUL",
	} {
		if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	_, err := sqlite.OpenConfig(t.Context(), sqlite.Config{Sync: "EXTRA"})
	for _, want := range []string{"Path: ", `Sync: "EXTRA"`, "NORMAL", "FULL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("two mistakes: the error lacks %q: %v", want, err)
		}
	}
}

// What is there but is no database, or not to be reached, is an error that says so, names the path, and changes nothing.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noise := make([]byte, 64<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	noisy := file("noise", noise)
	before := entries(t, dir)
	for path, want := range map[string]error{
		filepath.Join(dir, "missing", "app.db"): database.ErrCannotOpen,
		filepath.Join(dir, "directory"):         database.ErrCannotOpen,
		filepath.Join(noisy, "app.db"):          database.ErrCannotOpen, // a file as a directory
		noisy:                                   database.ErrNotADatabase,
		file("text", bytes.Repeat([]byte("no database\n"), 1000)):            database.ErrNotADatabase,
		file("header only", append([]byte("SQLite format 3\x00"), noise...)): database.ErrNotADatabase,
	} {
		_, err := sqlite.Open(t.Context(), path)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want.Error()) {
			t.Errorf("%s: got %v, want %v with the path", filepath.Base(path), err, want)
		}
	}
	if got, err := fs.ReadFile(os.DirFS(dir), "noise"); err != nil || !bytes.Equal(got, noise) {
		t.Errorf("the file that is no database was changed (%v)", err)
	}
	if got := entries(t, dir); len(got) != len(before)+2 {
		t.Errorf("files appeared: %q, before %q", got, before)
	}
}

// An empty file is an empty database.
func TestAnEmptyFileIsADatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := write(t, path); n != 1 {
		t.Errorf("it has %d writes", n)
	}
}

// Open gives up when its context has ended, and leaves nothing running.
func TestOpenWithAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "app.db")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
