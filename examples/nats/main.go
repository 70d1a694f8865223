// Command nats shows two services with a database each, and NATS JetStream between them. The shop commits an order and its event
// in one transaction, and its relay sends the event to the stream. Billing, a process of its own, has a durable subscriber of
// it. It is killed, misses two orders, and starts again.
//
//	go run ./examples/nats        until Ctrl-C, with an order a second
//	go run ./examples/nats -once  ends when all is settled
//
// The NATS server runs inside the program. NATS_URL names another one, with JetStream on.
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
	"github.com/openloam/loam/outbox/natsjs"
)

func main() {
	once := flag.Bool("once", false, "end when everything is settled")
	dir := flag.String("billing", "", "be the billing service, with its database in this `directory`, until standard input ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := &locked{w: os.Stdout}
	var err error
	if *dir != "" {
		err = runBilling(ctx, out, *dir, os.Getenv(natsjs.URLEnv))
	} else {
		err = run(ctx, out, os.Getenv(natsjs.URLEnv), *once)
	}
	if err != nil && !errors.Is(err, context.Canceled) { // Ctrl-C may come at any time
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

// open makes the engine of a service: a database of its own, and the stream that all share.
func open(ctx context.Context, service, dir, url string, subscribers *durable.Registry) (*loam.Engine, func() error, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})).With(slog.String("service", service))
	bus, err := natsjs.New(natsjs.Config{URL: url, Service: service, Stream: "LOAM_EXAMPLE", Subject: "loam.example", Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(ctx, filepath.Join(dir, service+".db"))
	if err != nil {
		return nil, nil, err
	}
	done := func() error { return errors.Join(bus.Close(), db.Close()) }
	engine, err := loam.New(loam.Config{DB: db, Registry: subscribers, Capture: loam.Outbox, Bus: bus, Logger: logger})
	if err == nil {
		err = errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, "acme"))
	}
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return engine, done, nil
}

func run(ctx context.Context, out io.Writer, url string, once bool) (err error) {
	dir, err := os.MkdirTemp("", "loam-nats-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if url == "" {
		server, err := broker(dir)
		if err != nil {
			return err
		}
		defer server.WaitForShutdown()
		defer server.Shutdown()
		url = server.ClientURL()
		fmt.Fprintln(out, "A NATS server runs inside this program.")
	}
	s, err := openShop(ctx, out, dir, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()

	// Its database, as the page of an operator would see it: an engine that is not started does not connect to NATS.
	books, err := openBooks(ctx, dir, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, books.done()) }()
	b, err := startBilling(ctx, out, dir, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }() // whichever it is then
	if err := s.place(ctx, "A-1"); err != nil {
		return err
	}
	if err := books.delivered(ctx, 1); err != nil {
		return err
	}

	fmt.Fprintln(out, "\nBilling is killed. The shop goes on.")
	if err := b.kill(); err != nil {
		return err
	}
	for _, id := range []string{"A-2", "A-3"} {
		if err := s.place(ctx, id); err != nil {
			return err
		}
	}
	if err := s.sent(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "shop: all events are in the stream")

	fmt.Fprintln(out, "\nBilling starts again.")
	again, err := startBilling(ctx, out, dir, url)
	if err != nil {
		return err
	}
	b = again
	if err := books.delivered(ctx, 3); err != nil {
		return err
	}
	fmt.Fprintln(out, "billing's database: 3 deliveries, all delivered")
	if once {
		return nil
	}

	fmt.Fprintln(out, "\nOne order a second, until Ctrl-C.")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 4; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.place(ctx, fmt.Sprintf("A-%d", n)); err != nil {
				return err
			}
		}
	}
}
