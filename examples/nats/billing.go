package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox/natsjs"
	"github.com/openloam/loam/tenant"
)

// working is what billing prints when it does.
const working = "billing: works"

// runBilling is the billing service, until its standard input ends.
func runBilling(ctx context.Context, out io.Writer, dir, url string) (err error) {
	subscribers := durable.NewRegistry()
	subscribers.RegisterFunc("billing.invoice", "shop.order.placed", func(_ context.Context, e events.Event) error {
		fmt.Fprintf(out, "billing: invoice for order %v\n", e.Payload["order_id"])
		return nil
	})
	engine, done, err := open(ctx, "billing", dir, url, subscribers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	fmt.Fprintln(out, working)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// books are billing's database, seen from outside.
type books struct {
	engine *loam.Engine
	done   func() error
}

func openBooks(ctx context.Context, dir, url string) (*books, error) {
	engine, done, err := open(ctx, "billing", dir, url, durable.NewRegistry())
	return &books{engine, done}, err
}

// delivered waits until n deliveries are.
func (b *books) delivered(ctx context.Context, n int) error {
	for {
		rows, err := b.engine.Deliveries(tenant.With(ctx, "acme"), durable.Query{Status: durable.Delivered})
		if err != nil || len(rows) == n {
			return err
		}
		if err := moment(ctx); err != nil {
			return err
		}
	}
}

// billing is the service as a process of its own.
type billing struct {
	cmd   *exec.Cmd
	stdin io.Closer
	works chan struct{} // closed when it says so
	ended chan struct{} // closed when its output ends
}

// startBilling starts this program as billing, and waits until it works.
func startBilling(ctx context.Context, out io.Writer, dir, url string) (*billing, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &billing{cmd: exec.CommandContext(context.WithoutCancel(ctx), self, "-billing", dir), works: make(chan struct{}), ended: make(chan struct{})} //nolint:gosec // this program
	b.cmd.Env = append(os.Environ(), natsjs.URLEnv+"="+url)
	b.cmd.Stderr = os.Stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(b.ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			fmt.Fprintln(out, lines.Text())
			if lines.Text() == working {
				close(b.works)
			}
		}
	}()
	select {
	case <-b.works:
		return b, nil
	case <-b.ended:
		return nil, fmt.Errorf("billing ended at once: %w", b.stop())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), b.kill())
	}
}

// kill is kill -9.
func (b *billing) kill() error {
	if err := b.cmd.Process.Kill(); err != nil {
		return err
	}
	<-b.ended
	_ = b.cmd.Wait() // it says that it was killed
	return nil
}

// stop lets it end by itself, if it has not.
func (b *billing) stop() error {
	if b.cmd.ProcessState != nil {
		return nil
	}
	_ = b.stdin.Close()
	<-b.ended
	return b.cmd.Wait()
}
