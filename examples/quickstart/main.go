// Command quickstart shows the life of an event: published, captured, delivered, failing, dead, and redelivered.
//
//	go run ./examples/quickstart          until Ctrl-C, with an event a second
//	go run ./examples/quickstart -once    ends when all is settled
//	go run ./examples/quickstart -db FILE keeps the database
//	go run ./examples/quickstart -http localhost:8080 shows the operator's pages
package main

import (
	"context"
	"database/sql"
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

var tenants = []string{"acme", "globex"}

func main() {
	file := flag.String("db", "", "the database `file`, kept afterwards (default: a temporary one)")
	once := flag.Bool("once", false, "end when everything is settled")
	pages := flag.String("http", "", "serve the operator's pages at this `address`, like localhost:8080")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *file, *pages, *once); err != nil && !errors.Is(err, context.Canceled) { // Ctrl-C may come at any time
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, file, pages string, once bool) (err error) {
	if file == "" {
		dir, err := os.MkdirTemp("", "loam-quickstart-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "quickstart.db")
	}
	db, err := sqlite.Open(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()

	out := &printer{w: w}
	world := register(out)
	engine, err := loam.New(loam.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := engine.Migrate(ctx); err != nil {
		return err
	}
	for _, t := range tenants {
		if err := engine.AddTenant(ctx, t); err != nil {
			return err
		}
	}
	engine.Subscribe("billing.", func(_ context.Context, e events.Event) error {
		out.say("inline", e, "counted, before Publish returned")
		return nil
	})
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() {
		if stopErr := engine.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stopErr
		}
	}()

	if pages != "" {
		stop, err := servePages(ctx, pages, engine, out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := story(ctx, engine, world, out); err != nil || once {
		return err
	}
	out.title("One event a second, until Ctrl-C")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 100; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := engine.Publish(tenant.With(ctx, tenants[n%2]), "billing.invoice.paid", events.Payload{"invoice_id": n}); err != nil {
				return err
			}
		}
	}
}

// story publishes two events for each tenant, waits, repairs the broken handler, and redelivers what is dead.
func story(ctx context.Context, engine *loam.Engine, world *world, out *printer) error {
	out.title("Publish")
	for i, t := range tenants {
		ctx := tenant.WithActor(tenant.With(ctx, t), "demo")
		if err := engine.Publish(ctx, "billing.invoice.paid", events.Payload{"invoice_id": 10*i + 1}); err != nil {
			return err
		}
		err := engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			// … your own writes on tx: the event is as durable as they are …
			return engine.PublishTx(ctx, tx, "billing.invoice.voided", events.Payload{"invoice_id": 10*i + 2})
		})
		if err != nil {
			return err
		}
	}
	if err := settle(ctx, engine); err != nil {
		return err
	}
	if err := table(ctx, engine, out, "All deliveries: one handler is broken"); err != nil {
		return err
	}

	out.title("Repair the handler, redeliver what is dead")
	world.repair()
	for _, t := range tenants {
		ctx := tenant.With(ctx, t)
		dead, err := engine.Deliveries(ctx, durable.Query{Status: durable.Dead})
		if err != nil {
			return err
		}
		for _, d := range dead {
			if err := engine.Redeliver(ctx, d.ID); err != nil {
				return err
			}
		}
	}
	if err := settle(ctx, engine); err != nil {
		return err
	}
	return table(ctx, engine, out, "All deliveries: nothing is dead")
}

// settle waits until no tenant has a pending delivery.
func settle(ctx context.Context, engine *loam.Engine) error {
	for _, t := range tenants {
		for {
			pending, err := engine.Deliveries(tenant.With(ctx, t), durable.Query{Status: durable.Pending, Limit: 1})
			if err != nil {
				return err
			}
			if len(pending) == 0 {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
