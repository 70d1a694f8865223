package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// broker is the NATS server of a run, seen from the parent: a process of its own, so that it can be killed and suspended, on a
// port that it keeps and over a store that it keeps.
type broker struct {
	dir, self string
	port      int

	attack sync.Mutex // one at a time

	mu sync.Mutex
	p  *proc // nil while it is down
}

const (
	brokerStderr = "broker.stderr"
	brokerLog    = "broker.log"
	brokerStore  = "broker"
)

// brokerPatience is how long it may take until it answers, over what it has stored.
const brokerPatience = 30 * time.Second

func (a *arena) newBroker(ctx context.Context) (*broker, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &broker{dir: a.files, self: a.self, port: l.Addr().(*net.TCPAddr).Port} //nolint:forcetypeassert // of a TCP listener
	_ = l.Close()
	return b, b.up(ctx)
}

func (b *broker) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.port) }

// up starts it, and returns when JetStream answers. Somebody else may have the port for a moment: then it is started again.
func (b *broker) up(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for limit := time.Now().Add(brokerPatience); ; {
		if b.p == nil || b.p.dead() {
			if err := b.start(); err != nil {
				return fmt.Errorf("start the broker: %w", err)
			}
		}
		err := b.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.AccountInfo(ctx)
			return err
		})
		if err == nil {
			return nil
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("the broker does not answer, see %s: %w", brokerLog, err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (b *broker) start() error {
	env, err := json.Marshal(orders{Broker: b.port, Dir: b.dir})
	if err != nil {
		return err
	}
	stderr, err := os.OpenFile(filepath.Join(b.dir, brokerStderr), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer stderr.Close()                                                                 // the process has its own
	p := &proc{cmd: exec.Command(b.self), ended: make(chan struct{}), began: time.Now()} //nolint:gosec,noctx // this program; it is ended with care
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	b.p = p
	return nil
}

// kill is kill -9.
func (b *broker) kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		return os.ErrProcessDone
	}
	if err := b.p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-b.p.ended
	b.p = nil
	return nil
}

// freeze suspends it, and returns it.
func (b *broker) freeze() (*os.Process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		return nil, os.ErrProcessDone
	}
	return b.p.cmd.Process, suspend(b.p.cmd.Process)
}

// down has it end in its own way.
func (b *broker) down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.p == nil {
		return
	}
	_ = b.p.stdin.Close()
	select {
	case <-b.p.ended:
	case <-time.After(patience):
		_ = b.p.cmd.Process.Kill()
		<-b.p.ended
	}
	b.p = nil
}

// brokerRun is the process.
func brokerRun(ctx context.Context, o orders) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: o.Broker, JetStream: true, StoreDir: filepath.Join(o.Dir, brokerStore), NoSigs: true,
		LogFile: filepath.Join(o.Dir, brokerLog),
	})
	if err != nil {
		return err
	}
	s.ConfigureLogger() // which ends the process when the port is taken
	s.Start()
	if !s.ReadyForConnections(brokerPatience) {
		return errors.New("the broker does not listen")
	}
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
