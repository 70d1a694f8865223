package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openloam/loam/database"
)

const (
	// standstill is how long no delivery may be made until the measurement is given up.
	standstill = 30 * time.Second
	// lookEvery is how often the database is asked whether all is committed, once all handlers have run.
	lookEvery = 2 * time.Millisecond
)

// contender is what is measured, and already works its fresh database.
type contender interface {
	// publish returns when event n is committed.
	publish(ctx context.Context, n int64) error
	// unfinished counts what is committed but not yet done.
	unfinished(ctx context.Context) (int, error)
	// copies are the statements that copy all that is done once for each n of a table c: the past of the database.
	copies() []string
	// verify returns an error unless the database has this many deliveries, each done by one run.
	verify(ctx context.Context, deliveries int) error
	stop(ctx context.Context) error
}

// setup is what a contender is made for.
type setup struct {
	*throughput
	db          *database.DB
	subscribers int
	handled     *atomic.Int64 // each handler counts here
}

// measure makes one measurement, on a fresh database.
func (t *throughput) measure(ctx context.Context, m mode, subscribers int) (f facts, r figures, err error) {
	db, drop, err := t.target.fresh(ctx)
	if err != nil {
		return f, r, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if f, err = readFacts(ctx, db); err != nil {
		return f, r, err
	}
	s := setup{throughput: t, db: db, subscribers: subscribers, handled: new(atomic.Int64)}
	c, err := m.start(ctx, s)
	if err != nil {
		return f, r, err
	}
	defer func() { err = errors.Join(err, c.stop(context.WithoutCancel(ctx))) }()
	if err := s.drive(ctx, c, 0, warmUp); err != nil {
		return f, r, err
	}
	past := s.past()
	if err := s.age(ctx, c, past); err != nil {
		return f, r, fmt.Errorf("make a past: %w", database.Explain(err))
	}
	runtime.GC() // of what the one before left
	cpu, began := cpuTime(), time.Now()
	if err := s.drive(ctx, c, warmUp, warmUp+t.events); err != nil {
		return f, r, err
	}
	took := time.Since(began)
	r.CPUPerEvent = float64((cpuTime() - cpu).Microseconds()) / float64(t.events)
	r.EventsPerSecond = float64(t.events) / took.Seconds()
	return f, r, c.verify(ctx, (warmUp*(1+past)+t.events)*subscribers)
}

// past is how often what the warm-up left is copied: the measurement then begins on tables of at most 20,000 rows.
func (s setup) past() int {
	return max(1, min(20_000, 4*s.events*s.subscribers)/(warmUp*s.subscribers))
}

// age gives the database a past. On PostgreSQL it also makes the statistics, as a server does by itself within minutes: until
// then it goes on with plans that it made for empty tables.
func (s setup) age(ctx context.Context, c contender, past int) error {
	for _, statement := range c.copies() {
		statement = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < $1) ` + statement
		if _, err := s.db.Write().ExecContext(ctx, statement, past); err != nil {
			return err
		}
	}
	if s.db.Dialect() != database.PostgreSQL {
		return nil
	}
	_, err := s.db.Write().ExecContext(ctx, `ANALYZE`)
	return err
}

// drive publishes the events from..to and returns when all up to there are done.
func (s setup) drive(ctx context.Context, c contender, from, to int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(from))
	var publishers sync.WaitGroup
	for range s.publishers {
		publishers.Go(func() {
			for n := next.Add(1) - 1; n < int64(to); n = next.Add(1) - 1 {
				if err := c.publish(ctx, n); err != nil {
					cancel(fmt.Errorf("publish: %w", err))
					return
				}
			}
		})
	}
	err := s.settled(ctx, c, int64(to*s.subscribers))
	if err != nil {
		cancel(err)
	}
	publishers.Wait()
	return err
}

// settled waits until this many handlers have run, and then until that is committed.
func (s setup) settled(ctx context.Context, c contender, deliveries int64) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var seen [2]int64 // handlers that have run, what is not done: while they change, it goes on
	for changed := time.Now(); ; {
		now := [2]int64{s.handled.Load(), -1}
		if now[0] >= deliveries {
			n, err := c.unfinished(ctx)
			if n == 0 || err != nil {
				return err
			}
			now[1] = int64(n)
		}
		if now != seen {
			seen, changed = now, time.Now()
		}
		if time.Since(changed) > standstill {
			return fmt.Errorf("nothing was delivered for %v: %d of %d handlers have run", standstill, now[0], deliveries)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
