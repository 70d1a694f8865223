// Package pgserver runs a PostgreSQL of its own for tests that stop and start it. It needs the server's programs, which
// .ci/postgres finds.
package pgserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/openloam/loam/internal/dbtest"
)

// Server is a server on a port of its own.
type Server struct {
	tb   testing.TB
	dir  string
	port string
}

// Start starts a server that ends with the test. Where PostgreSQL is not tested at all, it skips.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if os.Getenv(dbtest.URLEnv) == "" {
		tb.Skipf("PostgreSQL is not tested: run make postgres, and set %s as it says", dbtest.URLEnv)
	}
	// Not t.TempDir: its parent is closed to the user that the server runs as.
	dir, err := os.MkdirTemp("", "loam-pg") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: filepath.Join(dir, "data"), port: FreePort(tb)}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.Up()
	tb.Cleanup(s.Down)
	return s
}

// FreePort is a port of this machine that nobody listened on a moment ago.
func FreePort(tb testing.TB) string {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // for a moment only
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	return port
}

// URL is the server's, with its first database.
func (s *Server) URL() string { return "postgres://loam@127.0.0.1:" + s.port + "/postgres" }

// Up starts the server and waits until it answers.
func (s *Server) Up() {
	s.tb.Helper()
	s.do("start", s.dir, s.port)
}

// Down stops the server as a crash does: every connection breaks at once.
func (s *Server) Down() {
	s.tb.Helper()
	if _, err := os.Stat(filepath.Join(s.dir, "postmaster.pid")); err == nil {
		s.do("stop", s.dir)
	}
}

func (s *Server) do(args ...string) {
	s.tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(root, ".ci", "postgres"), args...).CombinedOutput() //nolint:gosec // our own script
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.tb.Fatalf("postgres %s: %v\n%s\n%s", strconv.Quote(args[0]), err, out, log)
	}
}

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", dir)
		}
	}
	return "", err
}
