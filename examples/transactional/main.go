// Command transactional keeps the balances of accounts: each transfer is an event, and its handler posts it exactly once,
// although every third one fails after it has written.
//
//	go run ./examples/transactional          until Ctrl-C, with a transfer a second
//	go run ./examples/transactional -once    ends when twenty transfers are posted
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

const transfers = 20

func main() {
	once := flag.Bool("once", false, "end when all transfers are posted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *once); err != nil && !errors.Is(err, context.Canceled) { // Ctrl-C may come at any time
		fmt.Fprintln(os.Stderr, "transactional:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, once bool) (err error) {
	dir, err := os.MkdirTemp("", "loam-transactional-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, filepath.Join(dir, "bank.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := loam.New(loam.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	b := &bank{db: db, engine: engine, failed: map[string]bool{}}
	durable.RegisterTx("bank.post", "bank.transfer.made", b.post, durable.WithBackoff(0))
	durable.RegisterFunc("bank.warn", "bank.account.overdrawn", b.warn)
	if err := errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, "acme"), b.open(ctx)); err != nil {
		return err
	}
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()

	ctx = tenant.With(ctx, "acme")
	for n := 1; n <= transfers; n++ {
		if err := b.transfer(ctx, n); err != nil {
			return err
		}
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	if err := b.print(ctx, w); err != nil || once {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := transfers + 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := errors.Join(b.transfer(ctx, n), b.settle(ctx), b.print(ctx, w)); err != nil {
				return err
			}
		}
	}
}

// transfer publishes one: from alice to bob, of as many cents as its number.
func (b *bank) transfer(ctx context.Context, n int) error {
	return b.engine.Publish(ctx, "bank.transfer.made", events.Payload{"from": "alice", "to": "bob", "cents": n})
}

// settle waits until everything is delivered.
func (b *bank) settle(ctx context.Context) error {
	for {
		pending, err := b.engine.Deliveries(ctx, durable.Query{Status: durable.Pending, Limit: 1})
		if err != nil || len(pending) == 0 {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
