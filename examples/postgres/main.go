// Command postgres is one program in several processes over one PostgreSQL: one that publishes and never works a delivery,
// and workers that share the deliveries. run.sh starts three.
//
//	LOAM_DATABASE_URL=postgres://… go run ./examples/postgres -migrate
//	LOAM_DATABASE_URL=postgres://… go run ./examples/postgres -role work -name worker-1
//	LOAM_DATABASE_URL=postgres://… go run ./examples/postgres -role publish
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
	"strconv"
	"syscall"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dburl"
	"github.com/openloam/loam/tenant"
)

const shopTenant = "acme"

// options are what the command line says.
type options struct {
	role, name, run string
	migrate, once   bool
	orders          int
	every, effort   time.Duration
}

func parse() options {
	var o options
	flag.StringVar(&o.role, "role", "both", "publish, work or both")
	flag.StringVar(&o.name, "name", "", "the `name` of this process in what it prints (default: role and process id)")
	flag.StringVar(&o.run, "run", strconv.FormatInt(time.Now().Unix(), 10), "the `name` of the run that the orders belong to")
	flag.BoolVar(&o.migrate, "migrate", false, "bring the database to this program's schema, and end")
	flag.BoolVar(&o.once, "once", false, "end when all orders of the run are delivered")
	flag.IntVar(&o.orders, "orders", 100, "how many `orders` a run has, with -once")
	flag.DurationVar(&o.every, "every", 0, "the time between two orders (default: a second, with -once 20ms)")
	flag.DurationVar(&o.effort, "effort", 10*time.Millisecond, "how long a handler takes")
	flag.Parse()
	if o.every == 0 {
		o.every = time.Second
		if o.once {
			o.every = 20 * time.Millisecond
		}
	}
	if o.name == "" {
		o.name = fmt.Sprintf("%s-%d", o.role, os.Getpid())
	}
	return o
}

func main() {
	o := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil && !errors.Is(err, context.Canceled) { // Ctrl-C may come at any time
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, o options) (err error) {
	publishes, works := o.role != "work", o.role != "publish"
	if publishes && works && o.role != "both" {
		return fmt.Errorf("-role: %q is not known, it must be publish, work or both", o.role)
	}
	place, err := dburl.FromEnv()
	if err != nil {
		return err
	}
	if place.Dialect != database.PostgreSQL {
		return fmt.Errorf("%s: this example is about PostgreSQL; for SQLite see examples/quickstart", dburl.Env)
	}
	db, err := place.Open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()

	s := &shop{db: db, options: o, out: w}
	// Both roles register: the publisher then knows for whom to write rows, from its first event on.
	durable.RegisterFunc("mailer.receipt", orderPaid, s.sendReceipt)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With(slog.String("process", o.name))
	s.engine, err = loam.New(loam.Config{DB: db, Logger: logger, Concurrency: 4}) // few, so that both workers get some
	if err != nil {
		return err
	}
	if o.migrate {
		return s.migrate(ctx)
	}
	if works { // a process that only publishes never calls Start
		if err := s.engine.Start(ctx); err != nil {
			return err
		}
		s.say("works")
		defer func() { // deferred later than Close, so it comes before
			if stopErr := s.engine.Stop(context.WithoutCancel(ctx)); stopErr != nil {
				err = stopErr
			}
			s.say("has delivered %d", s.delivered.Load())
		}()
	}
	ctx = tenant.With(ctx, shopTenant)
	if publishes {
		if err := s.publish(ctx); err != nil {
			return err
		}
	}
	if !o.once {
		<-ctx.Done()
		return nil
	}
	if err := s.settle(ctx); err != nil || !publishes {
		return err
	}
	return s.report(ctx)
}
