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
	"github.com/openloam/loam/database/sqlite"
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

// loam runs the command and returns what it writes and its exit code.
func loam(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func check(t *testing.T, path string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(migrations.Check(t.Context(), db), db.Close()); err != nil {
		t.Error(err)
	}
}

// contract: M-01. One command makes a database of a file that is not there, says what it did, and may run again.
func TestMigrate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app 1.db")
	out, errs, code := loam(t, "migrate", "--sqlite", path)
	if code != 0 || errs != "" || !strings.Contains(out, "applied river 1\n") || !strings.Contains(out, "applied 0001_deliveries\n") || !strings.Contains(out, path+" is up to date (") {
		t.Errorf("the first time: exit %d\n%s%s", code, out, errs)
	}
	check(t, path)
	if out, errs, code = loam(t, "migrate", "--sqlite", path); code != 0 || errs != "" || out != path+" is up to date (0 applied)\n" {
		t.Errorf("the second time: exit %d\n%s%s", code, out, errs)
	}
}

// contract: M-01, M-02. Processes that migrate one new file at the same time all succeed, and each migration is applied by
// one of them.
func TestSeveralProcessesMigrate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	var mu sync.Mutex
	var outputs strings.Builder
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			out, errs, code := loam(t, "migrate", "--sqlite", path)
			if code != 0 {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			mu.Lock()
			defer mu.Unlock()
			outputs.WriteString(out)
		})
	}
	all.Wait()
	if n := strings.Count(outputs.String(), "applied 0001_deliveries\n"); n != 1 {
		t.Errorf("0001_deliveries was applied by %d of them\n%s", n, outputs.String())
	}
	check(t, path)
}

// What is wrong is said on standard error, with exit code 1, and nothing is created.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"migrate"}, `"sqlite" not set`},
		{[]string{"migrate", "--sqlite", ""}, "Path: is empty"},
		{[]string{"migrate", "--sqlite", filepath.Join(dir, "missing", "app.db")}, database.ErrCannotOpen.Error()},
		{[]string{"migrate", "--sqlite", dir}, database.ErrCannotOpen.Error()},
		{[]string{"migrate", "--sqlite", filepath.Join(dir, "app.db"), "extra"}, "extra"},
		{[]string{"migrate", "--postgres", "x"}, "unknown flag: --postgres"},
		{[]string{"migrat"}, `unknown command "migrat"`},
	} {
		out, errs, code := loam(t, c.args...)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit %d, want 1 and %q\n%s%s", c.args, code, c.want, out, errs)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("created %v (%v)", left, err)
	}
}
