package main

import (
	"bufio"
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/dburl"
	"github.com/openloam/loam/migrations"
)

// hangEnv makes the test binary a migrator of the database in it that stops for ever just before a commit, and says so.
const hangEnv = "LOAM_TEST_HANG"

func hang(at string) error {
	ctx := context.Background()
	place, err := dburl.Parse(at)
	if err != nil {
		return err
	}
	armed := false
	wrap := func(c driver.Connector) driver.Connector { return hangConnector{c, &armed} }
	var db *database.DB
	if place.Dialect == database.PostgreSQL {
		db, err = postgres.OpenConfig(ctx, postgres.Config{URL: at, Wrap: wrap})
	} else {
		db, err = sqlite.OpenConfig(ctx, sqlite.Config{Path: at, Wrap: wrap})
	}
	if err != nil {
		return err
	}
	armed = true
	_, err = migrations.Migrate(ctx, db, time.Now())
	return err
}

type hangConnector struct {
	driver.Connector
	armed *bool
}

func (c hangConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hangConn{conn.(fullConn), c.armed}, nil
}

// fullConn is what the connections of both drivers implement.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type hangConn struct {
	fullConn
	armed *bool
}

func (c hangConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return hangTx{tx, c.armed}, nil
}

type hangTx struct {
	driver.Tx
	armed *bool
}

func (t hangTx) Commit() error {
	if *t.armed {
		fmt.Println("before the commit")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent kills it, or dies
	}
	return t.Tx.Commit()
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
