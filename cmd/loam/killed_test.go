package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/dburl"
	"github.com/openloam/loam/migrations"
)

// hangEnv makes the test binary a migrator of the database in it that stops for ever just before a commit, and says so.
const hangEnv = "LOAM_TEST_HANG"

func hang(at string) error {
	place, err := dburl.Parse(at)
	if err != nil {
		return err
	}
	db, faults, err := dbtest.Connect(dbtest.Place{Dialect: place.Dialect, At: at})
	if err != nil {
		return err
	}
	faults.Before(func(op dbtest.Op) error {
		if op.Kind == "commit" {
			fmt.Println("before the commit")
			_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent kills it, or dies
		}
		return nil
	})
	_, err = migrations.Migrate(context.Background(), db, time.Now())
	return err
}

// contract: M-01, M-02. A migrator that is killed just before its first commit has left nothing and blocks nobody, although on
// PostgreSQL it had the migrators' lock: the next one does it all.
func TestKilledMigrator(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			at := dbtest.Empty(t, kind).At
			killMigrator(t, at)
			out, errs, code := loam(t, "migrate", flags[kind], at)
			if code != 0 || !strings.Contains(out, "applied river 1\n") || !strings.Contains(out, "applied 0001_deliveries\n") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			check(t, at)
		})
	}
}

func killMigrator(t *testing.T, at string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), hangEnv+"="+at)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "before the commit\n" {
		t.Errorf("the migrator said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the migrator ended by itself")
	}
}
