package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/openloam/loam/internal/pgserver"
)

// pooler runs pgbouncer before a database, and returns the URL of the database behind it.
func pooler(t *testing.T, mode string, target *url.URL) string {
	t.Helper()
	port := pgserver.FreePort(t)
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // t.TempDir is closed to the user it runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
ignore_startup_parameters = extra_float_digits
`, target.Hostname(), target.Port(), target.User.Username(), port, mode)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // read by another user
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // likewise
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "pgbouncer", file) //nolint:gosec // a test
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 { // it does not run as root
		run.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if err := run.Start(); err != nil {
		t.Fatalf("pgbouncer: %v (apt-get install pgbouncer)", err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	u := *target
	u.Host = "127.0.0.1:" + port
	return u.String()
}
