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
	// Work starts the engine; Publish is how many events a second to publish, 0 for none.
	Work    bool
	Publish int
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
	err := childRun(ctx, o, said)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNotUp) && database.Unavailable(err):
		fmt.Fprintln(os.Stderr, err)
		return exitNotUp
	}
	fmt.Fprintln(os.Stderr, "ended:", err)
	return 1
}

// exitNotUp is the code of a process that found no database when it started: whoever looks after it starts it again.
const exitNotUp = 75

var errNotUp = errors.New("not up")

// child is a process of the application.
type child struct {
	orders
	diary  *diary
	db     *database.DB
	engine *loam.Engine
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
	c.engine, err = loam.New(loam.Config{
		DB: c.db, Registry: reg,
		Logger: slog.New(logWatcher{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}), c.diary}),
		Now:    func() time.Time { return time.Now().Add(o.Shift) },
		Lease:  lease, TakeoverMargin: margin, RenewEvery: renewEvery, LostClaimsEvery: lostEvery, SweepEvery: sweepEvery,
		MaxClockSkew: margin, CrashLimit: 1000, Concurrency: 32, HandlerTimeout: time.Minute,
		// Short: the parent's patience with a process that is to end is longer.
		DrainTimeout: 2 * time.Second, StopTimeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	if err := c.engine.Migrate(ctx); err != nil {
		return ended(ctx, err)
	}
	if o.Work {
		if err := c.engine.Start(ctx); err != nil {
			return ended(ctx, err)
		}
		defer func() { err = errors.Join(err, c.engine.Stop(context.WithoutCancel(ctx))) }()
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

// ended is what ended a start: nothing, if it is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return fmt.Errorf("%w: %w", errNotUp, err)
	}
	return nil
}
