package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// childEnv holds a child's orders; without it the program is the parent.
const childEnv = "LOAM_TORTURE_CHILD"

// orders are what a child is told at its start.
type orders struct {
	// N is the number of the process: a pid can come again.
	N        int
	Database string
	Location string
	Dir      string
	// Broker is the port of one who is the broker, and nothing else; else 0.
	Broker int
	// Bus is the broker's URL.
	Bus string
	// Work starts the engine; Publish is how many events a second to publish, 0 for none.
	Work    bool
	Publish int
	// Capture is how events are captured, and how those are that are published again.
	Capture [2]string
	// Crowd is how many subscribers there are in the crowd.
	Crowd int
	// After is the number of the publisher whose place this one takes, 0 for none: what that one has not confirmed may be
	// published again.
	After int
	Shift time.Duration
	Seed  uint64
}

// childMain is the main function of a child. It ends when its standard input does: the parent has closed it, or died.
func childMain(env string) int {
	var o orders
	if err := json.Unmarshal([]byte(env), &o); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := make(chan string)
	go func() {
		defer cancel()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			select {
			case said <- in.Text():
			case <-ctx.Done():
			}
		}
	}()
	run := func() error { return childRun(ctx, o, said) }
	if o.Broker != 0 {
		run = func() error { return brokerRun(ctx, o) }
	}
	err := run()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotUp) && database.Unavailable(err):
		fmt.Fprintln(os.Stderr, err)
		return exitNotUp
	case errors.Is(err, errLate):
		fmt.Fprintln(os.Stderr, err)
		return exitLate
	}
	fmt.Fprintln(os.Stderr, "ended:", err)
	return 1
}

// exitNotUp is the code of a process that found no database when it started: whoever looks after it starts it again.
const exitNotUp = 75

// exitLate is the code of a process that was told to stop, and whose Stop says that not all has ended in time: with a full disk
// outcomes cannot be written. What it has left runs again elsewhere.
const exitLate = 76

var (
	errNotUp = errors.New("not up")
	errLate  = errors.New("stopped late")
)

// child is a process of the application.
type child struct {
	orders
	diary *diary
	db    *database.DB
	ways  [2]way
}

// way is a way to publish.
type way struct {
	engine  *loam.Engine
	capture string
}

func childRun(ctx context.Context, o orders, said <-chan string) (err error) {
	c := &child{orders: o}
	if c.diary, err = openDiary(o.Dir, childDiary(o.N)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.diary.close()) }()
	b := backends[o.Database]()
	if c.db, err = b.open(ctx, o.Location); err != nil {
		return ended(ctx, err)
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	reg := durable.NewRegistry()
	c.register(reg)
	for i, capture := range o.Capture {
		if i > 0 && capture == c.ways[0].capture {
			c.ways[i] = c.ways[0]
			continue
		}
		engine, closeBus, err := c.engineFor(reg, capture)
		if err != nil {
			return err
		}
		defer closeBus() // after the engine's Stop; what it could not send any more is sent again
		c.ways[i] = way{engine, capture}
	}
	engine := c.ways[0].engine
	if err := engine.Migrate(ctx); err != nil {
		return ended(ctx, err)
	}
	if o.Work {
		if err := engine.Start(ctx); err != nil {
			return ended(ctx, err)
		}
		defer func() {
			if late := engine.Stop(context.WithoutCancel(ctx)); late != nil && err == nil {
				err = errors.Join(errLate, late)
			}
		}()
	}
	published := make(chan error, 1)
	go func() { published <- c.publish(ctx) }()
	for {
		select {
		case order := <-said:
			if err := b.obey(ctx, c.db, order); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, order+":", err)
			}
		case <-ctx.Done():
			return <-published
		}
	}
}

func (c *child) now() time.Time { return time.Now().Add(c.Shift) }

func (c *child) logger() *slog.Logger {
	return slog.New(logWatcher{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}), c.diary})
}

func (c *child) engineFor(reg *durable.Registry, capture string) (engine *loam.Engine, closeBus func(), err error) {
	cfg := loam.Config{
		DB: c.db, Registry: reg, Capture: loam.Direct, Logger: c.logger(), Now: c.now,
		Lease: lease, TakeoverMargin: margin, RenewEvery: renewEvery, LostClaimsEvery: lostEvery, SweepEvery: sweepEvery,
		MaxClockSkew: margin, CrashLimit: 1000, Concurrency: 32 + crowdConcurrency*c.Crowd, HandlerTimeout: time.Minute,
		StuckAfter: time.Minute, // no handler is; a process that was suspended could think so
		// Short: the parent's patience with a process that is to end is longer.
		DrainTimeout: 2 * time.Second, StopTimeout: 10 * time.Second,
	}
	closeBus = func() {}
	switch capture {
	case captureOutbox:
		cfg.Capture = loam.Outbox
	case captureNATS:
		bus, err := c.newBus()
		if err != nil {
			return nil, nil, err
		}
		cfg.Capture, cfg.Bus, closeBus = loam.Outbox, bus, func() { _ = bus.Close() }
		cfg.OutboxMaxAttempts = 1000 // as CrashLimit: a consumer that is killed spends a delivery
	}
	engine, err = loam.New(cfg)
	return engine, closeBus, err
}

// ended is what ended a start: nothing, if it is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return fmt.Errorf("%w: %w", errNotUp, err)
	}
	return nil
}
