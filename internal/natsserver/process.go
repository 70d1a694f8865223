package natsserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// program is the file of nats-server, built once for all tests that use the same go.mod: go keeps it in its build cache.
var program = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "tool", "-n", "nats-server").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", fmt.Errorf("build nats-server: %w", err)
	}
	return string(bytes.TrimSpace(out)), nil
})

// Process is a server in a process of its own, on a port that it keeps.
type Process struct {
	tb        testing.TB
	dir, port string
	args      []string

	cmd *exec.Cmd
	log *os.File
}

// Start starts a server with JetStream that ends with the test. args are more arguments of nats-server.
func Start(tb testing.TB, args ...string) *Process {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // for a moment only
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	p := &Process{tb: tb, dir: tb.TempDir(), port: port, args: args}
	tb.Cleanup(func() {
		if p.cmd != nil {
			p.Kill()
		}
	})
	p.Up()
	return p
}

// URL is the server's.
func (p *Process) URL() string { return "nats://127.0.0.1:" + p.port }

// Store is the folder of its streams.
func (p *Process) Store() string { return p.dir }

// Up starts the server, over what it has stored, and waits until JetStream answers.
func (p *Process) Up() {
	p.tb.Helper()
	if p.cmd != nil {
		p.tb.Fatal("the NATS server runs")
	}
	file, err := program()
	if err != nil {
		p.tb.Fatal(err)
	}
	if p.log, err = os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		p.tb.Fatal(err)
	}
	args := append([]string{"-a", "127.0.0.1", "-p", p.port, "-js", "-sd", p.dir}, p.args...)
	p.cmd = exec.Command(file, args...) //nolint:gosec,noctx // the file is ours, and Kill ends it
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		p.tb.Fatal(err)
	}
	for deadline := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		if p.answers() {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(p.logFile())
			p.tb.Fatalf("the NATS server does not answer:\n%s", log)
		}
	}
}

// answers reports whether the server takes connections, and its JetStream requests. One that demands a password is asked
// no more than whether it is there.
func (p *Process) answers() bool {
	nc, err := nats.Connect(p.URL(), nats.Timeout(time.Second))
	if err != nil {
		return errors.Is(err, nats.ErrAuthorization)
	}
	defer nc.Close()
	_, err = nc.Request("$JS.API.INFO", nil, time.Second)
	return err == nil
}

// Down stops the server as an operator does: it ends in order.
func (p *Process) Down() { p.end(syscall.SIGTERM) }

// Kill ends the server at once.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Freeze stops the server where it is, without a word to anyone, until Thaw.
func (p *Process) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw has the server go on.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Error(err)
	}
}

func (p *Process) end(s syscall.Signal) {
	p.tb.Helper()
	p.signal(s)
	p.signal(syscall.SIGCONT) // if it is frozen
	_ = p.cmd.Wait()          // a signal is what it ends by
	p.cmd = nil
	_ = p.log.Close()
}

func (p *Process) logFile() string { return filepath.Join(p.dir, "nats-server.log") }
