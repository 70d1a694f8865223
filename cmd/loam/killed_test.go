package main

import (
	"bufio"
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/migrations"
)

// hangEnv makes the test binary a migrator of the file in it that stops for ever just before its commit, and says so.
const hangEnv = "LOAM_TEST_HANG"

func hang(path string) error {
	armed := false
	db, err := sqlite.OpenConfig(context.Background(), sqlite.Config{Path: path, Wrap: func(c driver.Connector) driver.Connector {
		return hangConnector{c, &armed}
	}})
	if err != nil {
		return err
	}
	armed = true
	_, err = migrations.Migrate(context.Background(), db, time.Now())
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
	return hangConn{conn.(sqliteConn), c.armed}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type hangConn struct {
	sqliteConn
	armed *bool
}

func (c hangConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.sqliteConn.BeginTx(ctx, opts)
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

// contract: M-01, M-02. A migrator that is killed just before its commit has left nothing and blocks nobody: the next one
// does it all.
func TestKilledMigrator(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), hangEnv+"="+path)
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
	out, errs, code := loam(t, "migrate", "--sqlite", path)
	if code != 0 || !strings.Contains(out, "applied river 1\n") || !strings.Contains(out, "applied 0001_deliveries\n") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	check(t, path)
}
