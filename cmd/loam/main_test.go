package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/dburl"
	"github.com/openloam/loam/migrations"
)

// mainEnv makes the test binary the command itself, with its own process and exit code.
const mainEnv = "LOAM_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		os.Exit(0)
	}
	if path := os.Getenv(hangEnv); path != "" {
		if err := hang(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// loam runs the command and returns what it writes and its exit code. There is no database in its environment.
func loam(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return loamIn(t, "", args...)
}

// loamIn is loam with a database in its environment.
func loamIn(t *testing.T, url string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), mainEnv+"=1", dburl.Env+"="+url)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func check(t *testing.T, at string) {
	t.Helper()
	place, err := dburl.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	db, err := place.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(migrations.Check(t.Context(), db), db.Close()); err != nil {
		t.Error(err)
	}
}

var kinds = []database.Dialect{database.SQLite, database.PostgreSQL}

// flags are those for the kind of database.
var flags = map[database.Dialect]string{database.SQLite: "--sqlite", database.PostgreSQL: "--postgres"}

// contract: M-01, J-04. One command makes the tables of an empty database, says what it did, and may run again; a flag or the
// environment names the database, and its name has no password.
func TestMigrate(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			at := dbtest.Empty(t, kind).At
			name := at
			if kind == database.PostgreSQL {
				at = strings.Replace(at, "@", ":secret@", 1) // the server asks for none
			}
			out, errs, code := loam(t, "migrate", flags[kind], at)
			if code != 0 || errs != "" || !strings.Contains(out, "applied river 1\n") || !strings.Contains(out, "applied 0001_deliveries\n") ||
				!strings.Contains(out, "\n"+name+" is up to date (") || strings.Contains(out, "(0 applied)") {
				t.Errorf("the first time: exit %d\n%s%s", code, out, errs)
			}
			check(t, at)
			if out, errs, code = loamIn(t, at, "migrate"); code != 0 || errs != "" || out != name+" is up to date (0 applied)\n" {
				t.Errorf("the second time: exit %d\n%s%s", code, out, errs)
			}
		})
	}
}

// A flag goes before the environment.
func TestFlagBeforeEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, other := filepath.Join(dir, "a file:1.db"), filepath.Join(dir, "other.db")
	if out, errs, code := loamIn(t, "sqlite:"+other, "migrate", "--sqlite", one); code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	check(t, "sqlite:"+one)
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("the other was created: %v", err)
	}
}

// contract: M-01, M-02. Processes that migrate one new database at the same time all succeed, and each migration is applied
// by one of them.
func TestSeveralProcessesMigrate(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			at := dbtest.Empty(t, kind).At
			var mu sync.Mutex
			var outputs strings.Builder
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					out, errs, code := loam(t, "migrate", flags[kind], at)
					if code != 0 {
						t.Errorf("exit %d\n%s%s", code, out, errs)
					}
					mu.Lock()
					defer mu.Unlock()
					outputs.WriteString(out)
				})
			}
			all.Wait()
			for _, name := range []string{"river 1", "0001_deliveries"} {
				if n := strings.Count(outputs.String(), "applied "+name+"\n"); n != 1 {
					t.Errorf("%s was applied by %d of them\n%s", name, n, outputs.String())
				}
			}
			check(t, at)
		})
	}
}

// What is wrong is said on standard error, with exit code 1, without a password, and nothing is created.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		env  string
		args []string
		want string
	}{
		{"", []string{"migrate"}, "LOAM_DATABASE_URL: is empty; " + dburl.Allowed + "; or give --sqlite FILE or --postgres URL"},
		{"mysql://me:secret@host/app", []string{"migrate"}, dburl.Allowed},
		{"sqlite:", []string{"migrate"}, "the path of a file must follow"},
		{"sqlite:" + filepath.Join(dir, "missing", "app.db"), []string{"migrate"}, database.ErrCannotOpen.Error()},
		{"postgres://me:secret@127.0.0.1:1/app", []string{"migrate"}, database.ErrUnreachable.Error()},
		{"postgres://me:se/cret@127.0.0.1:1/app", []string{"migrate"}, "is not a URL"},
		{"", []string{"migrate", "--sqlite", ""}, "Path: is empty"},
		{"", []string{"migrate", "--sqlite", filepath.Join(dir, "missing", "app.db")}, database.ErrCannotOpen.Error()},
		{"", []string{"migrate", "--sqlite", dir}, database.ErrCannotOpen.Error()},
		{"", []string{"migrate", "--sqlite", filepath.Join(dir, "app.db"), "extra"}, "extra"},
		{"", []string{"migrate", "--sqlite", filepath.Join(dir, "app.db"), "--postgres", "postgres://h/app"}, "none of the others can be"},
		{"", []string{"migrate", "--postgres", "x"}, "--postgres: must begin with postgres:// or postgresql://"},
		{"", []string{"migrate", "--postgres", ""}, "--postgres: must begin with postgres:// or postgresql://"},
		{"", []string{"migrate", "--postgres", "postgres://me:secret@127.0.0.1:1/app"}, database.ErrUnreachable.Error()},
		{"", []string{"migrate", "--postgres", "postgres://me:sec%ret@127.0.0.1:1/app"}, "is not a URL"},
		{"", []string{"migrat"}, `unknown command "migrat"`},
	} {
		out, errs, code := loamIn(t, c.env, c.args...)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, "cret") {
			t.Errorf("%s %q: exit %d, want 1 and %q\n%s%s", c.env, c.args, code, c.want, out, errs)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("created %v (%v)", left, err)
	}
}
