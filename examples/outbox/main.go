// Command outbox shows the outbox: an order and its event are written in one transaction, the event as one row of event_queue.
// The relay of a worker, here the same program, makes deliveries of it.
//
//	go run ./examples/outbox        until Ctrl-C, with an order a second
//	go run ./examples/outbox -once  ends when all is settled
//
// EVENT_QUEUE_MAX_ATTEMPTS is how often a row may fail before it is dead_lettered (5). Loam reads no environment; a program that
// wants such a variable does what maxAttempts does.
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
	"strconv"
	"syscall"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/tenant"
)

const maxAttemptsEnv = "EVENT_QUEUE_MAX_ATTEMPTS"

func main() {
	once := flag.Bool("once", false, "end when everything is settled")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv(maxAttemptsEnv), *once); err != nil && !errors.Is(err, context.Canceled) { // Ctrl-C may come at any time
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// maxAttempts reads the value of EVENT_QUEUE_MAX_ATTEMPTS.
func maxAttempts(value string) (int, error) {
	if value == "" {
		return outbox.DefaultMaxAttempts, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a whole number of 1 or more; leave it out for %d", maxAttemptsEnv, value, outbox.DefaultMaxAttempts)
	}
	return n, nil
}

func run(ctx context.Context, w io.Writer, attempts string, once bool) (err error) {
	limit, err := maxAttempts(attempts)
	if err != nil {
		return err
	}
	out := &locked{w: w}
	dir, err := os.MkdirTemp("", "loam-outbox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := loam.New(loam.Config{
		DB: db, Registry: subscribers(out), Logger: slog.New(slog.DiscardHandler),
		Capture: loam.Outbox, OutboxMaxAttempts: limit,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, "acme")); err != nil {
		return err
	}
	s := &shop{engine: engine, out: out}
	ctx = tenant.With(ctx, "acme")
	if err := s.open(ctx); err != nil {
		return err
	}

	fmt.Fprintln(out, "No worker runs yet. Each order is one transaction: its own row, and one in event_queue.")
	for _, o := range []order{{"A-1", 1200}, {"A-2", 700}, {"A-3", -1}} {
		if err := s.place(ctx, o); err != nil {
			return err
		}
	}
	if err := s.show(ctx); err != nil {
		return err
	}
	if err := s.foreign(ctx, limit); err != nil {
		return err
	}

	fmt.Fprintln(out, "\nA worker starts. Its relay makes deliveries of the rows.")
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.show(ctx); err != nil || once {
		return err
	}

	fmt.Fprintln(out, "\nOne order a second, until Ctrl-C.")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 4; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.place(ctx, order{fmt.Sprintf("A-%d", n), 100}); err != nil {
				return err
			}
		}
	}
}
